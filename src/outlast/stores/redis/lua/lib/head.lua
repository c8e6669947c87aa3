-- Stands at the head of every script: how keys are named, what time it is, how numbers are written.
--
-- ARGV[1]  msgpack map: prefix (of every key), now ("=micros" or "+offset" to the server's time),
--          part and parts (this partition of how many), floor (the greatest token the caller knows),
--          identity (of the partition, as it was when it was opened; its meta is the last of KEYS)
-- ARGV[2…] what the script is asked for, told at its own head
--
-- A script touches a key only if it is in KEYS. Most callers know all keys beforehand. Where a name
-- follows from data (the timers of a run that ends, the runs of a tree that is deleted), the script
-- answers {"want", {key, …}} before it has written anything, and is called again with those keys.

local call, sub, format, floor = redis.call, string.sub, string.format, math.floor
local given = cmsgpack.unpack(ARGV[1])
local PREFIX = given.prefix
local named = {}
for i = 1, #KEYS do
    named[sub(KEYS[i], #PREFIX + 1)] = KEYS[i]
end

-- Not the partition that the caller has opened: it was flushed, or is another server's. What it held is
-- gone, and must not begin again in silence.
local meta = call('HMGET', KEYS[#KEYS], 'identity', 'deleting')
if given.identity and meta[1] ~= given.identity then
    return redis.error_reply('GONE the data of this partition is not what was opened')
end

local missing, is_missing = {}, {}

-- While deciding: the key of that name, or nil, and then it is asked for.
local function need(name)
    local found = named[name]
    if not found and not is_missing[name] then
        is_missing[name] = true
        missing[#missing + 1] = PREFIX .. name
    end
    return found
end

-- While writing: the key of that name. The decision has made sure that it is there.
local function at(name)
    return named[name] or error('outlast: the script was not given the key ' .. name)
end

-- Trees that are deleted in portions, see lib/marks.lua: root → mark; nil if there is none.
local deleting = meta[2] and cmsgpack.unpack(meta[2]) or nil

-- A whole number as text: Lua would write 1.7e+15.
local function int(number)
    return format('%.0f', number)
end

local function server_time()
    local time = call('TIME')
    return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local function store_time()
    if sub(given.now, 1, 1) == '=' then
        return tonumber(sub(given.now, 2))
    end
    return server_time() + tonumber(given.now)
end

local now = store_time()
local now_text = int(now)

-- The later of a time (text) and the present.
local function from_now(micros)
    return tonumber(micros) < now and now_text or micros
end

-- Numbers (text) as text of one width that sorts like them, exact beyond 53 bits.
local function sortable(number)
    local negative = sub(number, 1, 1) == '-'
    local digits = negative and sub(number, 2) or number
    digits = string.rep('0', 20 - #digits) .. digits
    if negative then
        return '0' .. digits:gsub('%d', function(digit) return tostring(9 - tonumber(digit)) end)
    end
    return '1' .. digits
end

-- Text with its length in front: what follows can never be taken for a part of it.
local function framed(text)
    return format('%08x', #text) .. text
end

-- A user's text as a part of a key: nothing in it separates, tags or ends (keys.py does the same).
local function encoded(text)
    if text == '' then
        return '%'
    end
    return (text:gsub('[%%:{}%c%z]', function(char) return format('%%%02X', char:byte()) end))
end

-- Tokens and outbox numbers grow with the server's clock and never fall behind what anybody has
-- seen: so they also grow over a failover that has lost the counter, and over partitions. The
-- remainder by the number of partitions keeps them apart.
local function grown(last, seen)
    local step, part = given.parts, given.part
    local least = math.max(tonumber(last or '0') + 1, tonumber(seen or '0') + 1, server_time())
    local count = floor(least / step)
    if count * step + part < least then
        count = count + 1
    end
    return int(count * step + part)
end

local function next_token()
    local token = grown(call('GET', at('token')), given.floor)
    call('SET', at('token'), token)
    return token
end
