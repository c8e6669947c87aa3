-- The beginning of each script: names of keys, the time, and how numbers and text are encoded.
--
-- ARGV[1]  msgpack map: prefix (of every key), now ("=micros" or "+offset" to the server's time),
--          part and parts (this partition of how many), floor (the greatest token the caller knows),
--          identity (of the partition, as it was when it was opened; its meta is the last of KEYS)
-- ARGV[2…] the arguments of the script, see its own head
--
-- A script uses only keys that are in KEYS. Most callers know all keys beforehand. Where a name depends on data
-- (the timers of a run that ends, the runs of a tree that is deleted), the script returns {"want", {key, …}}
-- before it writes anything, and the caller calls it again with those keys.

local call, sub, format, floor = redis.call, string.sub, string.format, math.floor
local context = cmsgpack.unpack(ARGV[1])
local PREFIX = context.prefix
local keys_by_name = {}
for i = 1, #KEYS do
    keys_by_name[sub(KEYS[i], #PREFIX + 1)] = KEYS[i]
end

-- Another partition than the caller has opened: the server was flushed or replaced. Its data is gone, and the
-- store must not silently start empty.
local meta = call('HMGET', KEYS[#KEYS], 'identity', 'deleting')
if context.identity and meta[1] ~= context.identity then
    return redis.error_reply('GONE the data of this partition is not what was opened')
end

local missing, is_missing = {}, {}

-- While deciding: the key of that name; nil if the caller has to pass it first.
local function need(name)
    local found = keys_by_name[name]
    if not found and not is_missing[name] then
        is_missing[name] = true
        missing[#missing + 1] = PREFIX .. name
    end
    return found
end

-- While writing: the key of that name, which the decision has required.
local function at(name)
    return keys_by_name[name] or error('outlast: the script was not context the key ' .. name)
end

-- Deletions of large trees, see lib/deletions.lua: root → deletion; nil if there is none.
local deleting = meta[2] and cmsgpack.unpack(meta[2]) or nil

-- An integer as text: Lua would write 1.7e+15.
local function int(number)
    return format('%.0f', number)
end

local function server_time()
    local time = call('TIME')
    return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local function store_time()
    if sub(context.now, 1, 1) == '=' then
        return tonumber(sub(context.now, 2))
    end
    return server_time() + tonumber(context.now)
end

local now = store_time()
local now_text = int(now)

-- The later of a time (text) and now.
local function from_now(micros)
    return tonumber(micros) < now and now_text or micros
end

-- A number (text) as text of fixed width that sorts like it, exact beyond 53 bits.
local function sortable(number)
    local negative = sub(number, 1, 1) == '-'
    local digits = negative and sub(number, 2) or number
    digits = string.rep('0', 20 - #digits) .. digits
    if negative then
        return '0' .. digits:gsub('%d', function(digit) return tostring(9 - tonumber(digit)) end)
    end
    return '1' .. digits
end

-- Text with its length in front, so that it cannot be confused with what follows.
local function framed(text)
    return format('%08x', #text) .. text
end

-- User text as a part of a key, without separators, hash tags and control characters (keys.py does the same).
local function encoded(text)
    if text == '' then
        return '%'
    end
    return (text:gsub('[%%:{}%c%z]', function(char) return format('%%%02X', char:byte()) end))
end

-- Tokens and outbox numbers grow with the server's clock and stay above every number that a caller has seen. So
-- they also grow over a failover that lost the counter, and over partitions. The remainder by the number of
-- partitions keeps the partitions apart.
local function next_number(last, seen)
    local step, part = context.parts, context.part
    local least = math.max(tonumber(last or '0') + 1, tonumber(seen or '0') + 1, server_time())
    local count = floor(least / step)
    if count * step + part < least then
        count = count + 1
    end
    return int(count * step + part)
end

local function next_token()
    local token = next_number(call('GET', at('token')), context.floor)
    call('SET', at('token'), token)
    return token
end
