-- Lines: the free tasks of one key in a queue. A line is named queue, key, and is there as long as such a
-- task is in this partition. One that has nothing to hand out, or may not, sleeps until a time.
-- The lines of one key in all queues of a scope (the part of a queue's name before a slash) have one pass,
-- the share they have had.
--
-- task:lined   ZSET  by text: queue key priority ready order task, of tasks with a key that are free
-- line:state   HASH  line → msgpack: queue, key, pass, wake (only while it sleeps), blocked (if its key has
--                    as many under way as it may: it sleeps until one of them ends)
-- line:turn    ZSET  by text: queue pass key, of lines that are awake
-- line:asleep  ZSET  by the time of waking: line
-- line:blocked ZSET  by text: scope key line, of lines that are blocked; only where all is in one partition
-- In the partition of the scope:
-- line:passed  HASH  scope key → pass. line:state has what another partition knows of it, maybe less
-- line:ahead   ZSET  by text: scope pass, scope key
-- policy:present HASH  scope → the pass of whom was served last

local END_OF_TIME = '9000000000000000'  -- a score that a double can hold
local REMEMBERED = 10000  -- passes of a scope; beyond that who is least ahead begins anew

local function scope_of(queue)
    return queue:match('^[^/]*')
end

local function present_of(scope)
    return tonumber(call('HGET', at('policy:present'), scope) or '0')
end

local function passed_by(scope, key)
    return tonumber(call('HGET', at('line:passed'), framed(scope) .. key) or '0')
end

local function save_pass(scope, key, pass)
    local head, name = framed(scope), framed(scope) .. key
    local before = call('HGET', at('line:passed'), name)
    if before then
        call('ZREM', at('line:ahead'), head .. sortable(before) .. name)
    end
    call('HSET', at('line:passed'), name, pass)
    call('ZADD', at('line:ahead'), '0', head .. sortable(pass) .. name)
    if call('ZLEXCOUNT', at('line:ahead'), '[' .. head, '(' .. head .. '\255') > REMEMBERED then
        local least = call('ZRANGEBYLEX', at('line:ahead'), '[' .. head, '+', 'LIMIT', 0, 1)[1]
        call('ZREM', at('line:ahead'), least)
        call('HDEL', at('line:passed'), sub(least, #head + 22))
    end
end

local function line_name(queue, key)
    return framed(queue) .. key
end

local function find_line(name)
    local packed = call('HGET', at('line:state'), name)
    return packed and cmsgpack.unpack(packed) or nil
end

local function turn_of(line)
    return framed(line.queue) .. sortable(line.pass) .. framed(line.key)
end

local function blocked_place(name, line)
    return framed(scope_of(line.queue)) .. framed(line.key) .. name
end

local function file_line(name, line)
    call('HSET', at('line:state'), name, cmsgpack.pack(line))
    if line.blocked then
        call('ZADD', at('line:blocked'), '0', blocked_place(name, line))
    end
    if line.wake then
        call('ZADD', at('line:asleep'), line.wake, name)
    else
        call('ZADD', at('line:turn'), '0', turn_of(line))
    end
end

local function unfile_line(name, line)
    if line.blocked then
        call('ZREM', at('line:blocked'), blocked_place(name, line))
    end
    if line.wake then
        call('ZREM', at('line:asleep'), name)
    else
        call('ZREM', at('line:turn'), turn_of(line))
    end
end

-- Let a line sleep until a time (text), or wake it (nil).
local function let_sleep(name, line, wake)
    unfile_line(name, line)
    line.wake, line.blocked = wake, nil
    file_line(name, line)
end

-- Let a line sleep until one of its key ends.
local function block_line(name, line)
    unfile_line(name, line)
    line.wake, line.blocked = END_OF_TIME, true
    file_line(name, line)
end

-- One of a key has ended.
local function wake_blocked(scope, key)
    local head = framed(scope) .. framed(key)
    for _, member in ipairs(call('ZRANGEBYLEX', at('line:blocked'), '[' .. head, '(' .. head .. '\255')) do
        local name = sub(member, #head + 1)
        let_sleep(name, find_line(name), nil)
    end
end

local function set_turn(queue, key, pass)
    local name = line_name(queue, key)
    local line = key ~= '' and find_line(name)
    if line and line.pass ~= pass then
        unfile_line(name, line)
        line.pass = pass
        file_line(name, line)
    end
end

local function lined_head(queue, key)
    return framed(queue) .. framed(key)
end

local function lined_place(name, task)
    return lined_head(task.queue, task.key) .. sortable(task.priority) .. sortable(task.ready)
        .. sortable(task.order) .. name
end

-- Where a line stands that a task enters: with a new one in the present at the earliest. A partition that
-- does not have the scope does not know; who looks tells it.
local function pass_for(task, is_new)
    local scope = scope_of(task.queue)
    local before = passed_by(scope, task.key)
    local pass = is_new and given.parts == 1 and math.max(before, present_of(scope)) or before
    if pass > before then
        save_pass(scope, task.key, int(pass))
    end
    return int(pass)
end

local function enter_line(name, task, is_new)
    call('ZADD', at('task:lined'), '0', lined_place(name, task))
    local own, pass = line_name(task.queue, task.key), pass_for(task, is_new)
    local line = find_line(own)
    local wake = tonumber(task.ready) > now and task.ready or nil
    if not line then
        file_line(own, { queue = task.queue, key = task.key, pass = pass, wake = wake })
        return
    end
    if tonumber(pass) > tonumber(line.pass) then
        set_turn(task.queue, task.key, pass)
        line.pass = pass
    end
    if line.wake and (not wake or tonumber(wake) < tonumber(line.wake)) then
        let_sleep(own, line, wake)
    end
end

local function leave_line(name, task)
    if call('ZREM', at('task:lined'), lined_place(name, task)) == 0 then
        return
    end
    local head = lined_head(task.queue, task.key)
    if not call('ZRANGEBYLEX', at('task:lined'), '[' .. head, '(' .. head .. '\255', 'LIMIT', 0, 1)[1] then
        local own = line_name(task.queue, task.key)
        unfile_line(own, find_line(own))
        call('HDEL', at('line:state'), own)
    end
end

-- Ready tasks whose places begin with `head`, without it: of each priority the first few. Stops when it
-- has enough, unless `every` priority is to be looked at. If none is ready, also when one will be.
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
