-- In front of scripts whose doings are written down: their lines that begin with --+ are in force then, and only then.
-- ARGV[#ARGV - 1] `cap ttl_ms stream`
--
-- An entry has what, name, fence, by (the start of a token, @host:pid) and detail. Beside the stream, `last` of a lock
-- is who was granted it and has not given it back: `fence since_us by`. A grant that finds one notices that it expired.
-- A journal breaks no lock: what cannot be written, for want of memory or permission, is dropped.

local cap, journal_ms, stream = string.match(ARGV[#ARGV - 1], '^(%d+) (%d+) (.+)$')
local own = string.sub(stream, 1, -8) -- what our keys begin with: `<prefix>ql:`

local function short(token) return string.sub(token, 1, 14) .. (string.match(token, '@.*$') or '') end

local function note(what, lock, fence, by, detail)
  local name = string.sub(lock, #own - 2)
  redis.pcall('XADD', stream, 'MAXLEN', '~', cap, '*',
    'what', what, 'name', name, 'fence', fence, 'by', by, 'detail', detail)
  redis.pcall('PEXPIRE', stream, journal_ms)
end

local function last_of(lock)
  local key = own .. 'last:{' .. lock .. '}'
  local last = redis.pcall('GET', key)
  if type(last) ~= 'string' then return key end
  return key, string.match(last, '^(%d+) (%d+) (.*)$')
end

local function note_grant(lock, fence, now, token, card)
  local key, earlier, since, by = last_of(lock)
  if by then note('expired', lock, earlier, by, since) end
  fence = string.format('%.0f', fence)
  redis.pcall('SET', key, string.format('%s %.0f %s', fence, now, short(token)), 'PX', journal_ms)
  note('acquired', lock, fence, short(token), card)
end

local function note_end(lock, token, mine, wake)
  if token == '' then return end -- somebody only leaves the queue
  local key, fence, since, by = last_of(lock)
  if by == short(token) then
    redis.pcall('DEL', key)
    if not mine then note('expired', lock, fence, by, since) end
  else
    fence, since = '0', ''
  end
  if mine then note('released', lock, fence, short(token), since .. ' ' .. wake) end
end
