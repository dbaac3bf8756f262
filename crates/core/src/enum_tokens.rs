/// The tokens of an enum: the texts that are stored and that programs read. Writes `ALL`,
/// `as_str`, `from_token` and `Display` from one list.
#[doc(hidden)]
#[macro_export]
macro_rules! enum_tokens {
    ($name:ident { $($variant:ident = $token:literal),+ $(,)? }) => {
        impl $name {
            /// All of them, in this order.
            pub const ALL: [Self; [$($token),+].len()] = [$(Self::$variant),+];

            /// The token that is stored and that programs read.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $token,)+ }
            }

            /// The one with this token.
            #[must_use]
            pub fn from_token(token: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.as_str() == token)
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
