-- Fair keys: the free tasks of one key in a queue. A fair key is named queue, key, and exists as long as this
-- partition has such a task. Without a task to hand out, or without capacity, it sleeps until a time. The fair
-- keys of one key in all queues of a scope (the part of a queue's name before a slash) share one pass
-- (stride scheduling): how much of the queue the key has used.
--
-- task:keyed    ZSET  by text: queue key priority ready order task, of free tasks with a key
-- fair:state    HASH  fair key → msgpack: queue, key, pass, wake (only while it sleeps), blocked (if its key is
--                     at its concurrency limit: it sleeps until a task of the key ends)
-- fair:turn     ZSET  by text: queue pass key, of fair keys that are awake
-- fair:asleep   ZSET  by wake-up time: fair key
-- fair:blocked  ZSET  by text: scope key fair key, of blocked ones; only with a single partition
-- In the home partition of the scope:
-- fair:pass     HASH  scope key → pass. fair:state of another partition may have an older one
-- fair:by-pass  ZSET  by text: scope pass, scope key
-- policy:global-pass  HASH  scope → the pass of the key that was served last

local END_OF_TIME = '9000000000000000'  -- a score that a double can hold
local REMEMBERED = 10000  -- passes of a scope; beyond that the smallest is dropped

local function scope_of(queue)
    return queue:match('^[^/]*')
end

local function global_pass_of(scope)
    return tonumber(call('HGET', at('policy:global-pass'), scope) or '0')
end

local function pass_of(scope, key)
    return tonumber(call('HGET', at('fair:pass'), framed(scope) .. key) or '0')
end

local function save_pass(scope, key, pass)
    local head, name = framed(scope), framed(scope) .. key
    local before = call('HGET', at('fair:pass'), name)
    if before then
        call('ZREM', at('fair:by-pass'), head .. sortable(before) .. name)
    end
    call('HSET', at('fair:pass'), name, pass)
    call('ZADD', at('fair:by-pass'), '0', head .. sortable(pass) .. name)
    if call('ZLEXCOUNT', at('fair:by-pass'), '[' .. head, '(' .. head .. '\255') > REMEMBERED then
        local least = call('ZRANGEBYLEX', at('fair:by-pass'), '[' .. head, '+', 'LIMIT', 0, 1)[1]
        call('ZREM', at('fair:by-pass'), least)
        call('HDEL', at('fair:pass'), sub(least, #head + 22))
    end
end

local function fair_key_name(queue, key)
    return framed(queue) .. key
end

local function find_fair_key(name)
    local packed = call('HGET', at('fair:state'), name)
    return packed and cmsgpack.unpack(packed) or nil
end

local function turn_of(fair_key)
    return framed(fair_key.queue) .. sortable(fair_key.pass) .. framed(fair_key.key)
end

local function blocked_member(name, fair_key)
    return framed(scope_of(fair_key.queue)) .. framed(fair_key.key) .. name
end

local function index_fair_key(name, fair_key)
    call('HSET', at('fair:state'), name, cmsgpack.pack(fair_key))
    if fair_key.blocked then
        call('ZADD', at('fair:blocked'), '0', blocked_member(name, fair_key))
    end
    if fair_key.wake then
        call('ZADD', at('fair:asleep'), fair_key.wake, name)
    else
        call('ZADD', at('fair:turn'), '0', turn_of(fair_key))
    end
end

local function unindex_fair_key(name, fair_key)
    if fair_key.blocked then
        call('ZREM', at('fair:blocked'), blocked_member(name, fair_key))
    end
    if fair_key.wake then
        call('ZREM', at('fair:asleep'), name)
    else
        call('ZREM', at('fair:turn'), turn_of(fair_key))
    end
end

-- Let a fair key sleep until a time (text), or wake it (nil).
local function set_wake_time(name, fair_key, wake)
    unindex_fair_key(name, fair_key)
    fair_key.wake, fair_key.blocked = wake, nil
    index_fair_key(name, fair_key)
end

-- Let a fair key sleep until a task of its key ends.
local function block_fair_key(name, fair_key)
    unindex_fair_key(name, fair_key)
    fair_key.wake, fair_key.blocked = END_OF_TIME, true
    index_fair_key(name, fair_key)
end

-- A task of a key has ended.
local function wake_blocked(scope, key)
    local head = framed(scope) .. framed(key)
    for _, member in ipairs(call('ZRANGEBYLEX', at('fair:blocked'), '[' .. head, '(' .. head .. '\255')) do
        local name = sub(member, #head + 1)
        set_wake_time(name, find_fair_key(name), nil)
    end
end

local function set_turn(queue, key, pass)
    local name = fair_key_name(queue, key)
    local fair_key = key ~= '' and find_fair_key(name)
    if fair_key and fair_key.pass ~= pass then
        unindex_fair_key(name, fair_key)
        fair_key.pass = pass
        index_fair_key(name, fair_key)
    end
end

local function keyed_prefix(queue, key)
    return framed(queue) .. framed(key)
end

local function keyed_member(name, task)
    return keyed_prefix(task.queue, task.key) .. sortable(task.priority) .. sortable(task.ready)
        .. sortable(task.order) .. name
end

-- The pass of a fair key that gets a task: with a new task at least the global pass. A partition that is not the
-- home of the scope does not know it; the scan tells it.
local function pass_for(task, is_new)
    local scope = scope_of(task.queue)
    local before = pass_of(scope, task.key)
    local pass = is_new and context.parts == 1 and math.max(before, global_pass_of(scope)) or before
    if pass > before then
        save_pass(scope, task.key, int(pass))
    end
    return int(pass)
end

local function add_to_fair_key(name, task, is_new)
    call('ZADD', at('task:keyed'), '0', keyed_member(name, task))
    local own, pass = fair_key_name(task.queue, task.key), pass_for(task, is_new)
    local fair_key = find_fair_key(own)
    local wake = tonumber(task.ready) > now and task.ready or nil
    if not fair_key then
        index_fair_key(own, { queue = task.queue, key = task.key, pass = pass, wake = wake })
        return
    end
    if tonumber(pass) > tonumber(fair_key.pass) then
        set_turn(task.queue, task.key, pass)
        fair_key.pass = pass
    end
    if fair_key.wake and (not wake or tonumber(wake) < tonumber(fair_key.wake)) then
        set_wake_time(own, fair_key, wake)
    end
end

local function remove_from_fair_key(name, task)
    if call('ZREM', at('task:keyed'), keyed_member(name, task)) == 0 then
        return
    end
    local head = keyed_prefix(task.queue, task.key)
    if not call('ZRANGEBYLEX', at('task:keyed'), '[' .. head, '(' .. head .. '\255', 'LIMIT', 0, 1)[1] then
        local own = fair_key_name(task.queue, task.key)
        unindex_fair_key(own, find_fair_key(own))
        call('HDEL', at('fair:state'), own)
    end
end

-- Ready tasks whose members begin with `head`, without it: the first few of each priority. Stops when it has
-- enough, unless `every` priority is read. If none is ready, also when one will be.
local function ready_in(set, head, few, every)
    local found, later, level = {}, nil, '[' .. head
    while every or #found < few do
        local member = call('ZRANGEBYLEX', set, level, '(' .. head .. '\255', 'LIMIT', 0, 1)[1]
        if not member then
            break
        end
        local top, ready = sub(member, 1, #head + 21), sub(member, #head + 22, #head + 42)
        if ready > sortable(now_text) then
            later = (not later or ready < later) and ready or later
        else
            for _, place in ipairs(call('ZRANGEBYLEX', set, '[' .. top,
                '[' .. top .. sortable(now_text) .. '\255', 'LIMIT', 0, few)) do
                found[#found + 1] = sub(place, #head + 1)
            end
        end
        level = '(' .. top .. '\255'
    end
    return found, later and int(tonumber(sub(later, 2)))
end
