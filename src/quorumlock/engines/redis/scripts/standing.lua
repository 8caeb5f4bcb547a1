-- Prepended to every script that needs a node in good standing.
-- The last ARGV is the marker (see join.lua) as the client knows it, `ready_at span_ms …`.

local STRANGER, QUARANTINE, ABSENT, OTHER_KIND, CHANGED = -1, -2, -3, -4, -5

local function now_us()
  local now = redis.call('TIME')
  return now[1] * 1000000 + now[2]
end

-- nil when this node may vote; else the answer that says why not.
local function not_standing(marker, now)
  if marker ~= ARGV[#ARGV] then return {STRANGER} end
  local ready_at, span_ms = string.match(marker, '^(%d+) (%d+)')
  local left_us = ready_at - now
  if left_us <= 0 then return nil end
  if left_us > span_ms * 1000 then return {STRANGER} end -- the clock stepped back: join again to be capped
  return {QUARANTINE, math.ceil(left_us / 1000)}
end

local function raise_fence(stored, to, ttl_ms)
  local fence = math.max(tonumber(stored) or 0, to)
  redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', ttl_ms)
  return fence
end
