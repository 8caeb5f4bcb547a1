-- KEYS stream
-- ARGV after (an id; '' : the newest), count
-- answers {now_us, id of the oldest ('' : nothing is kept), {id, what, name, fence, by, detail, …}}, the newest last

local after, count = ARGV[1], tonumber(ARGV[2])
local found, rows = {}, {}
if after == '' then
  found = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', count)
  for i = 1, math.floor(#found / 2) do found[i], found[#found + 1 - i] = found[#found + 1 - i], found[i] end
else
  found = redis.call('XRANGE', KEYS[1], after, '+', 'COUNT', count + 1)
  if found[1] and found[1][1] == after then table.remove(found, 1) end
end
for i = 1, math.min(#found, count) do
  local said = found[i][2]
  rows[#rows + 1] = found[i][1]
  for at = 2, 10, 2 do rows[#rows + 1] = said[at] or '' end
end
local now = redis.call('TIME')
local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
return {now[1] * 1000000 + now[2], oldest and oldest[1] or '', rows}
