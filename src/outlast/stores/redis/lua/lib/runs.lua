-- Runs: their heads read once, changed in Lua, written back once; and where they are filed.
--
-- wf:ID:state   HASH   the record: the fields in HOT, and others that scripts never look into
-- idx:ids       ZSET   by text: ID
-- idx:created   ZSET   by text: created ID
-- idx:updated   ZSET   by text: time of the last commit ID
-- idx:filed     ZSET   by text: workflow status created ID
-- idx:parent    ZSET   by text: parent created ID
-- idx:attr      ZSET   by text: attribute created ID
-- idx:status:S  SET    ID
-- idx:ended     ZSET   by time of the end: ID
-- runnable      ZSET   by text: workflow runnable_at ID, of runs that nobody holds
-- held          ZSET   by the time of takeover: workflow runnable_at ID, of runs that somebody holds

-- include: marks

local HOT = {
    'uid', 'status', 'sequence', 'revision', 'token', 'commit', 'workflow', 'parent', 'runnable',
    'owner', 'until', 'inbox', 'created', 'updated', 'ended', 'tags', 'quarantine',
}
local AT_ONCE = 1000  -- arguments of one command: Lua has room for a few thousand
local TERMINAL = { completed = true, failed = true, cancelled = true }
local runs = {}  -- id → run, or false
local changed = {}  -- id → run, since the last flush

local heads = {}  -- id → how the names of its keys begin

local function of_run(id, what)
    local head = heads[id]
    if not head then
        head = 'wf:' .. encoded(id) .. ':'
        heads[id] = head
    end
    return head .. what
end

local function is_ended(run)
    return TERMINAL[run.status] == true
end

-- Whether a run has ended for good: one that is being moved is closed, but may not have arrived.
local function is_over(run)
    return is_ended(run) and not (
        run.status == 'cancelled'
        and call('HGET', at(of_run(run.id, 'state')), 'wait_kind') == 'moving'
    )
end

-- The run as it stands in this script, or false. Nil if its key, or the end of a deletion, is wanted first.
local function find(id)
    if runs[id] == nil then
        local key = need(of_run(id, 'state'))
        if not key or is_going(id, false) then
            return nil
        end
        local values = call('HMGET', key, unpack(HOT))
        local run = false
        if values[1] then
            run = { id = id, dirty = {} }
            for i, name in ipairs(HOT) do
                run[name] = values[i] or nil
            end
            run.shelf = false
        end
        if run and deleting and is_over(run) and is_going(id, true) then
            return nil
        end
        runs[id] = run
    end
    return runs[id]
end

local function set(run, name, value)
    changed[run.id] = run
    run[name] = value
    if value == nil then
        value = false  -- the field goes
    end
    run.dirty[name] = value
end

-- -- where a run is filed ------------------------------------------------------------------------

local function shelf_of(run)
    if not run.runnable then
        return nil
    end
    local member = framed(run.workflow) .. sortable(run.runnable) .. run.id
    if not run.owner then
        return 'runnable', '0', member
    end
    local takeover = math.max(tonumber(run['until'] or '0'), tonumber(run.runnable))
    return 'held', int(takeover), member
end

local function filed_as(run)
    return framed(run.workflow) .. framed(run.status) .. sortable(run.created) .. run.id
end

local function tags_of(run)
    return run.tags and cmsgpack.unpack(run.tags) or {}
end

-- Take a run off all shelves before it is changed, put it back after.
local function unshelve(run)
    local set, _, member = shelf_of(run)
    if set then
        call('ZREM', at(set), member)
    end
end

local function shelve(run)
    local set, score, member = shelf_of(run)
    if set then
        call('ZADD', at(set), score, member)
    end
end

local function file(run)
    call('ZADD', at('idx:filed'), '0', filed_as(run))
    call('SADD', at('idx:status:' .. run.status), run.id)
end

local function unfile(run)
    call('ZREM', at('idx:filed'), filed_as(run))
    call('SREM', at('idx:status:' .. run.status), run.id)
end

local function tag(run, tags, command)
    for _, one in ipairs(tags) do
        local member = framed(one) .. sortable(run.created) .. run.id
        if command == 'ZADD' then
            call('ZADD', at('idx:attr'), '0', member)
        else
            call('ZREM', at('idx:attr'), member)
        end
    end
end

local function need_shelves()
    need('runnable')
    need('held')
end

local function need_files(status)
    need('idx:filed')
    need('idx:status:' .. status)
end

-- -- life ----------------------------------------------------------------------------------------

local function need_birth(fresh)
    need('idx:ids')
    need('idx:created')
    need('idx:updated')
    need_files(fresh.status)
    need_shelves()
    need(of_run(fresh.id, 'seq'))
    need(of_run(fresh.id, 'events'))
    need(of_run(fresh.id, 'event-ids'))
    if fresh.parent then
        need('idx:parent')
    end
    if fresh.tags then
        need('idx:attr')
    end
    if TERMINAL[fresh.status] then
        need('idx:ended')
    end
end

-- A new life. `fresh` has id, uid, workflow, status, parent, runnable, created, tags as the record
-- has them, and `set`, the other fields of the record; `ended` if it has ended elsewhere.
local function begin(fresh)
    local run = { id = fresh.id, dirty = {}, ended_before = fresh.ended }
    set(run, 'uid', fresh.uid)
    set(run, 'status', fresh.status)
    set(run, 'sequence', '0')
    set(run, 'revision', '0')
    set(run, 'token', '0')
    set(run, 'commit', '')
    set(run, 'workflow', fresh.workflow)
    set(run, 'parent', fresh.parent)
    set(run, 'runnable', fresh.runnable and from_now(fresh.runnable))
    set(run, 'inbox', '0')
    set(run, 'created', fresh.created or now_text)
    set(run, 'updated', now_text)
    set(run, 'tags', fresh.tags)
    run.dirty['id'] = fresh.id
    local rest = fresh.set or {}
    for i = 1, #rest, 2 do
        run.dirty[rest[i]] = rest[i + 1]
    end
    runs[run.id] = run
    call('ZADD', at('idx:ids'), '0', run.id)
    call('ZADD', at('idx:created'), '0', sortable(run.created) .. run.id)
    call('ZADD', at('idx:updated'), '0', sortable(run.updated) .. run.id)
    if run.parent then
        local member = framed(run.parent) .. sortable(run.created) .. run.id
        call('ZADD', at('idx:parent'), '0', member)
    end
    tag(run, tags_of(run), 'ZADD')
    file(run)
    shelve(run)
    return run
end

-- Number events and add them. `events` is a flat list: id, time (text, '' for now), bytes.
local function append(run, events)
    if not events or #events == 0 then
        return
    end
    local key, ids = at(of_run(run.id, 'events')), at(of_run(run.id, 'event-ids'))
    local first, scored, known = tonumber(run.sequence), {}, {}
    for i = 1, #events, 3 do
        local sequence = int(first + (i + 2) / 3)
        local time = events[i + 1] == '' and now_text or events[i + 1]
        scored[#scored + 1] = sequence
        scored[#scored + 1] = sequence .. ' ' .. run.token .. ' ' .. time .. ' ' .. events[i + 2]
        known[#known + 1] = events[i]
        known[#known + 1] = sequence
    end
    for i = 1, #scored, AT_ONCE do
        local last = math.min(i + AT_ONCE - 1, #scored)
        call('ZADD', key, unpack(scored, i, last))
        call('HSET', ids, unpack(known, i, last))
    end
    set(run, 'sequence', int(call('INCRBY', at(of_run(run.id, 'seq')), #events / 3)))
end

-- Write back what has changed in the records.
local function flush()
    for id, run in pairs(changed) do
        local key, values, gone = at(of_run(id, 'state')), {}, {}
        for name, value in pairs(run.dirty) do
            if value == false then
                gone[#gone + 1] = name
            else
                values[#values + 1] = name
                values[#values + 1] = value
            end
        end
        if #values > 0 then
            call('HSET', key, unpack(values))
        end
        if #gone > 0 then
            call('HDEL', key, unpack(gone))
        end
        run.dirty = {}
        if deleting then
            end_checks(id)
        end
    end
    changed = {}
end
