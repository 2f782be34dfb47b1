-- Time is the server's: one clock for everybody, and it cannot be told otherwise. It is read once, because up to Redis 7.0 two
-- readings in one call differ. Ticks are microseconds since 1970, as windows begin when those of the wall clock do: whole numbers
-- far below 2^53, up to which a double is exact. (`tostring` would keep 14 digits of them; nothing here uses it.)
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- A state that has paid off is as good as none, so that is when its key goes; after a century at the latest.
local function expiry(wait)
  return math.max(math.min(math.ceil(wait / 1000), 3153600000000), 1)
end
