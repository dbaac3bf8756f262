//! The same as JSON, for programs, under `/api/v1`.

mod health;

use crate::routes::Routes;

pub(crate) fn routes(routes: Routes) -> Routes {
    routes.open("/livez", health::livez).open("/readyz", health::readyz)
}
