-- KEYS keys
-- ARGV none
-- answers how many of them there were
local found = 0
for first = 1, #KEYS, 1000 do -- Lua passes some thousand arguments, not more
  found = found + redis.call('DEL', unpack(KEYS, first, math.min(first + 999, #KEYS)))
end
return found
