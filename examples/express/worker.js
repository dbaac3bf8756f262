import { serve } from "task-engine";
import { pool } from "./database.js";
import "./tasks.js";

await serve({ concurrency: 4 });
await pool.end();
