import js from "@eslint/js";
import ts from "typescript-eslint";

export default ts.config(
  { ignores: [".compiler/", "dist/", "build/", "node_modules/", "tests/generated/"] },
  js.configs.recommended,
  ...ts.configs.strictTypeChecked,
  ...ts.configs.stylisticTypeChecked,
  {
    languageOptions: {
      parserOptions: { project: ["./tsconfig.json", "./tsconfig.tests.json"], tsconfigRootDir: import.meta.dirname },
    },
    rules: {
      // Numbers in messages are readable.
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true, allowBoolean: true }],
      // `ctx.step<Result>` says what JSON is.
      "@typescript-eslint/no-unnecessary-type-parameters": "off",
      // The runner waits for its tests.
      "@typescript-eslint/no-floating-promises": [
        "error",
        { allowForKnownSafeCalls: [{ from: "package", package: "node:test", name: ["test", "before", "after"] }] },
      ],
      // A constructor may make that of an abstract class public, with other parameters.
      "@typescript-eslint/no-useless-constructor": "off",
    },
  },
  { files: ["**/*.js"], ...ts.configs.disableTypeChecked },
);
