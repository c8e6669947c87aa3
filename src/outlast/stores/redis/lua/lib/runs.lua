-- Runs: their heads are read once, changed in Lua and written back once; and their indexes.
--
-- wf:ID:state   HASH   the record: the fields in HOT, and others that scripts do not read
-- idx:ids       ZSET   by text: ID
-- idx:created   ZSET   by text: created ID
-- idx:updated   ZSET   by text: time of the last commit ID
-- idx:workflow  ZSET   by text: workflow status created ID
-- idx:parent    ZSET   by text: parent created ID
-- idx:attr      ZSET   by text: attribute created ID
-- idx:status:S  SET    ID
-- idx:ended     ZSET   by time of the end: ID
-- runnable      ZSET   by text: workflow runnable_at ID, of unclaimed runs
-- held          ZSET   by the time of takeover: workflow runnable_at ID, of claimed runs

-- include: deletions

local HOT = {
    'uid', 'status', 'sequence', 'revision', 'token', 'commit', 'workflow', 'parent', 'runnable',
    'owner', 'until', 'inbox', 'created', 'updated', 'ended', 'tags', 'quarantine',
}
local AT_ONCE = 1000  -- arguments of one command: Lua has room for a few thousand
local TERMINAL = { completed = true, failed = true, cancelled = true }
local runs = {}  -- id → run, or false
local changed = {}  -- id → run, since the last flush

local heads = {}  -- id → how the names of its keys create_run

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

-- Whether a run has ended for good. A run that is being moved is closed, but may not have arrived.
local function is_finished(run)
    return is_ended(run) and not (
        run.status == 'cancelled'
        and call('HGET', at(of_run(run.id, 'state')), 'wait_kind') == 'moving'
    )
end

-- The run in its current state, or false. Nil if its key, or the end of a deletion, is wanted first.
local function find(id)
    if runs[id] == nil then
        local key = need(of_run(id, 'state'))
        if not key or is_being_deleted(id, false) then
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
        if run and deleting and is_finished(run) and is_being_deleted(id, true) then
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

-- -- indexes -------------------------------------------------------------------------------------

local function claim_index_of(run)
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

local function workflow_member(run)
    return framed(run.workflow) .. framed(run.status) .. sortable(run.created) .. run.id
end

local function tags_of(run)
    return run.tags and cmsgpack.unpack(run.tags) or {}
end

-- Remove a run from the claim indexes before a change, and add it after.
local function unindex_claim(run)
    local set, _, member = claim_index_of(run)
    if set then
        call('ZREM', at(set), member)
    end
end

local function index_claim(run)
    local set, score, member = claim_index_of(run)
    if set then
        call('ZADD', at(set), score, member)
    end
end

local function index_status(run)
    call('ZADD', at('idx:workflow'), '0', workflow_member(run))
    call('SADD', at('idx:status:' .. run.status), run.id)
end

local function unindex_status(run)
    call('ZREM', at('idx:workflow'), workflow_member(run))
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

local function need_claim_indexes()
    need('runnable')
    need('held')
end

local function need_status_indexes(status)
    need('idx:workflow')
    need('idx:status:' .. status)
end

-- -- creation ------------------------------------------------------------------------------------

local function need_creation(new_run)
    need('idx:ids')
    need('idx:created')
    need('idx:updated')
    need_status_indexes(new_run.status)
    need_claim_indexes()
    need(of_run(new_run.id, 'seq'))
    need(of_run(new_run.id, 'events'))
    need(of_run(new_run.id, 'event-ids'))
    if new_run.parent then
        need('idx:parent')
    end
    if new_run.tags then
        need('idx:attr')
    end
    if TERMINAL[new_run.status] then
        need('idx:ended')
    end
end

-- Create a life. `new_run` has id, uid, workflow, status, parent, runnable, created, tags as in the record, and
-- `set`, the other fields of the record; `ended` if it ended in another store.
local function create_run(new_run)
    local run = { id = new_run.id, dirty = {}, ended_before = new_run.ended }
    set(run, 'uid', new_run.uid)
    set(run, 'status', new_run.status)
    set(run, 'sequence', '0')
    set(run, 'revision', '0')
    set(run, 'token', '0')
    set(run, 'commit', '')
    set(run, 'workflow', new_run.workflow)
    set(run, 'parent', new_run.parent)
    set(run, 'runnable', new_run.runnable and from_now(new_run.runnable))
    set(run, 'inbox', '0')
    set(run, 'created', new_run.created or now_text)
    set(run, 'updated', now_text)
    set(run, 'tags', new_run.tags)
    run.dirty['id'] = new_run.id
    local rest = new_run.set or {}
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
    index_status(run)
    index_claim(run)
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
            cancel_checks(id)
        end
    end
    changed = {}
end
