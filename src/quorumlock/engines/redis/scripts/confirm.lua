-- KEYS lock, fence, marker
-- ARGV token, granted, fence, fence_ttl_ms, marker
-- answers {1, fence} raised · {-5} granted again since · {-1} stranger · {-2, ms} quarantine

if refusal then return refusal end
if seen[1] ~= ARGV[1] or stored ~= tonumber(ARGV[2]) then return {CHANGED} end
local fence = math.max(stored, tonumber(ARGV[3]))
redis.call('SET', fence_key, string.format('%.0f', fence) .. string.match(seen[2], '^%d+(.*)$'), 'PX', ARGV[4])
return {1, fence}
