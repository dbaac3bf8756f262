-- Changes whenever another connection has committed. Costs no disk access.
PRAGMA data_version
