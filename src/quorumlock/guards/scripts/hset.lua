-- KEYS hash
-- ARGV field, value, field, value and so on
-- answers how many fields are new
local new = 0
for first = 1, #ARGV, 1000 do -- Lua passes some thousand arguments, not more; the first call finds a wrong type
  new = new + redis.call('HSET', KEYS[1], unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
return new
