-- Which server this is, who serves this connection, and whether both ends of it
-- have the same address: only then is the backend a process of this machine.
SELECT
  current_setting('server_version'),
  pg_backend_pid(),
  inet_server_addr() IS NOT DISTINCT FROM inet_client_addr()
