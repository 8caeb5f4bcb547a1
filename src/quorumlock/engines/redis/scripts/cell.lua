-- KEYS cell, fence (not used), marker
-- ARGV verb (get, enter, swap, put), version, value, ttl_ms, marker
-- answers {1, version, value} got (version 0: there is none) · {1, version} set · {-5, version} another's · {-1}, {-2, ms}
--
-- A cell is `version entered value`. `swap` sets it if it has this version, and gives it a new one. On several nodes
-- whoever is going to set it enters first, with its fence: what an earlier one sets later is refused.

if refusal then return refusal end
local verb, version, value, ttl_ms = unpack(ARGV)
local known, entered, held = string.match(seen[1] or '', '^(%d+) (%d+) (.*)$')
known, entered, version = tonumber(known) or 0, tonumber(entered) or 0, tonumber(version)
if not seen[1] and redis.call('EXISTS', KEYS[1]) == 1 then return {OTHER_KIND} end
if verb == 'get' then return {1, known, held or ''} end
if verb == 'swap' then
  if known ~= version then return {CHANGED, known} end
  known = math.max(version + 1, now) -- not used again when the cell was forgotten meanwhile
elseif known > version or entered > version then
  return {CHANGED, math.max(known, entered)}
elseif verb == 'enter' then
  entered, value = version, held or ''
else
  known = version
end
redis.call('SET', KEYS[1], string.format('%.0f %.0f ', known, entered) .. value, 'PX', ttl_ms)
if verb == 'enter' then return {1, known, value} end
return {1, known}
