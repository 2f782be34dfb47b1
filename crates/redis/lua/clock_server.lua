-- Time is the server's: one clock for everybody, and it cannot be told otherwise. It is read once, because up to Redis 7.0 two
-- readings in one call differ. Ticks are microseconds since 2024: whole numbers far below 2^53, up to which a double
-- is exact. (`tostring` would keep 14 digits of them; nothing here uses it.)
local time = redis.call('TIME')
local now = (time[1] - 1704067200) * 1000000 + time[2]
-- A state that lies further ahead than this was written under a clock that has since been put back (a failover to a machine
-- with another idea of time). It counts as written now; otherwise it would refuse until the clock is there again.
local leap = 60000000
-- A state that has paid off is as good as none, so that is when its key goes.
local function expiry(wait)
  return math.max(math.min(math.ceil(wait / 1000), 3153600000000), 1)
end
