-- For tests: time is the last argument, in microseconds, and keys outlive it by an hour of real time whatever they say. Its keys
-- are called differently, so that it cannot meddle with what is decided by the server's clock.
local now = tonumber(ARGV[#KEYS + 2])
local function expiry() return 3600000 end
