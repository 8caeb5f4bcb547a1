-- KEYS cell, fence (not used), marker
-- ARGV verb (get, swap, put), version, value, ttl_ms, marker
-- answers {1, version, value} got (version 0: there is none) · {1, version} set · {-5, version} another's · {-1}, {-2, ms}
--
-- A cell is `version value`. `swap` sets it if it has this version, and gives it a new one; `put` if its version is lower.

if refusal then return refusal end
local verb, version, value, ttl_ms = unpack(ARGV)
local known, held = string.match(seen[1] or '', '^(%d+) (.*)$')
known = tonumber(known) or 0
if not seen[1] and redis.call('EXISTS', KEYS[1]) == 1 then return {OTHER_KIND} end
if verb == 'get' then return {1, known, held or ''} end
version = tonumber(version)
if verb == 'swap' then
  if known ~= version then return {CHANGED, known} end
  version = math.max(version + 1, now) -- not used again when the cell was forgotten meanwhile
elseif known > version then
  return {CHANGED, known}
end
redis.call('SET', KEYS[1], string.format('%.0f ', version) .. value, 'PX', ttl_ms)
return {1, version}
