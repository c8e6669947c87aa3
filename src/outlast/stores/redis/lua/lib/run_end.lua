-- The end of a run, which closes its open work, and the deletion of runs with their contents.
--
-- wf:ID:timers      SET     timer ids            timer:ID:TIMER  HASH  run, id, fire_at, fired
-- timers:due        ZSET    by time in ms: ID:TIMER
-- wf:ID:activities  SET     activity ids         act:ACTIVITY:state  HASH  run, at, bytes
-- wf:ID:keys        SET     "PARTITION NAME" of the idempotency keys that belong to the run
-- idx:keyed         ZSET    by text: ids of runs that own keys
-- idx:snapshots     ZSET    by text: ids of runs that have a snapshot
-- outbox            HASH    number → msgpack: a message to another partition
-- outbox:number     counter

local OWNED = {
    'state', 'seq', 'events', 'event-ids', 'inbox', 'items', 'timers', 'entries', 'activities',
    'snapshot', 'tasks', 'keys', 'facts',
}

local function timer_name(run_id, id)
    return 'timer:' .. encoded(run_id) .. ':' .. encoded(id)
end

local function activity_name(id)
    return 'act:' .. encoded(id) .. ':state'
end

local function due_name(run_id, id)
    return run_id .. ':' .. id
end

local has_outbox_entries = false

-- Put a message to another partition into the outbox. The writer, or after a crash any process, carries it.
local function put_in_outbox(entry)
    local number = next_number(call('GET', at('outbox:number')))
    call('SET', at('outbox:number'), number)
    call('HSET', at('outbox'), number, entry)
    has_outbox_entries = true
end

local function need_outbox()
    need('outbox')
    need('outbox:number')
end

local function need_end(run_id)
    is_being_deleted(run_id, true)
    need('idx:ended')
    need_claim_indexes()
    need_tasks_of(run_id)
    local timers = need(of_run(run_id, 'timers'))
    local ids = timers and call('SMEMBERS', timers) or {}
    for _, id in ipairs(ids) do
        need(timer_name(run_id, id))
    end
    if #ids > 0 then
        need('timers:due')
    end
end

-- End a run: no owner, no wake-up, no open tasks and timers.
local function end_run(run)
    unindex_claim(run)
    set(run, 'runnable', nil)
    set(run, 'owner', nil)
    set(run, 'until', nil)
    set(run, 'ended', run.ended_before or now_text)
    call('ZADD', at('idx:ended'), run.ended, run.id)
    if call('EXISTS', at(of_run(run.id, 'tasks'))) == 1 then
        drop_tasks(run.id)
    end
    local timers = at(of_run(run.id, 'timers'))
    for _, id in ipairs(call('SMEMBERS', timers)) do
        local key = at(timer_name(run.id, id))
        if call('HGET', key, 'fired') == '0' then
            call('DEL', key)
            call('SREM', timers, id)
            call('ZREM', at('timers:due'), due_name(run.id, id))
        end
    end
end

-- -- deletion ------------------------------------------------------------------------------------

-- The first descendants of a run in an index: one more than fits into a portion.
local function descendants_in(set, id, after)
    return call('ZRANGEBYLEX', set, '(' .. (after or id .. '~'), '(' .. id .. '\127', 'LIMIT', 0, PORTION + 1)
end

local function need_keys_of(id)
    local keys = need(of_run(id, 'keys'))
    for _, member in ipairs(keys and call('SMEMBERS', keys) or {}) do
        local part, name = member:match('^(%d+) (.*)$')
        if tonumber(part) == context.part then
            need(name)
        else
            need_outbox()
        end
    end
end

local function need_removal(id)
    for _, what in ipairs(OWNED) do
        need(of_run(id, what))
    end
    local run = find(id)
    if not run then
        return
    end
    need_end(id)
    need_status_indexes(run.status)
    if run.parent then
        need('idx:parent')
    end
    if run.tags then
        need('idx:attr')
    end
    local activities = keys_by_name[of_run(id, 'activities')]
    for _, activity in ipairs(activities and call('SMEMBERS', activities) or {}) do
        need(activity_name(activity))
    end
end

-- Spare the open descendants of a tree; how many there are.
local function spare_open(tree)
    local ended, goes, open = {}, {}, 0
    for _, one in ipairs(tree.ids) do
        local run = find(one)
        if run and is_finished(run) then
            ended[#ended + 1], goes[one] = one, true
        elseif run then
            open = open + 1
        end
    end
    if open > 0 then
        local keyed = {}
        for _, one in ipairs(tree.keyed) do
            if goes[one] then
                keyed[#keyed + 1] = one
            end
        end
        tree.ids, tree.keyed = ended, keyed
    end
    return open
end

-- The plan for deleting a tree: {ids of its runs, ids that own keys}. Nil if keys are wanted first. `spares` tells
-- which descendants stay, all or the open ones; they need the facts of the tree. For a tree that is larger than a
-- portion the plan has the root only, and `deletion` is the kind of deletion of its descendants.
local function plan_tree(id, spares)
    local ids, keyed = need('idx:ids'), need('idx:keyed')
    need('idx:created')
    need('idx:updated')
    need('idx:snapshots')
    local root = find(id)
    if not (ids and keyed) or root == nil then
        return nil
    end
    local tree = { ids = descendants_in(ids, id), keyed = descendants_in(keyed, id), found = root and true or false }
    if spares == 'all' then
        tree.spared = #tree.ids
        tree.ids, tree.keyed = {}, {}
    elseif #tree.ids > LARGE or #tree.keyed > LARGE then
        tree.deletion, tree.spared = spares and 'ended' or 'all', spares and #tree.ids or 0
        tree.ids, tree.keyed = {}, {}
    elseif spares then
        tree.spared = spare_open(tree)
    end
    if root then
        table.insert(tree.ids, 1, id)
    end
    table.insert(tree.keyed, 1, id)
    for _, one in ipairs(tree.ids) do
        need_removal(one)
    end
    for _, one in ipairs(tree.keyed) do
        need_keys_of(one)
    end
    return tree
end

local function delete_keys(id)
    local keys = at(of_run(id, 'keys'))
    for _, member in ipairs(call('SMEMBERS', keys)) do
        local part, name = member:match('^(%d+) (.*)$')
        if tonumber(part) ~= context.part then
            put_in_outbox(cmsgpack.pack({ to = tonumber(part), kind = 'unbind', name = name, run = id }))
        elseif call('HGET', at(name), 'run') == id then
            call('UNLINK', at(name))
        end
    end
    call('UNLINK', keys)
    call('ZREM', at('idx:keyed'), id)
end

local function delete_run(id, keeps)
    local run = find(id)
    unindex_claim(run)
    unindex_status(run)
    call('ZREM', at('idx:ids'), id)
    call('ZREM', at('idx:created'), sortable(run.created) .. id)
    call('ZREM', at('idx:updated'), sortable(run.updated) .. id)
    call('ZREM', at('idx:ended'), id)
    call('ZREM', at('idx:snapshots'), id)
    if run.parent then
        call('ZREM', at('idx:parent'), framed(run.parent) .. sortable(run.created) .. id)
    end
    tag(run, tags_of(run), 'ZREM')
    if call('EXISTS', at(of_run(id, 'tasks'))) == 1 then
        drop_tasks(id)
    end
    for _, timer in ipairs(call('SMEMBERS', at(of_run(id, 'timers')))) do
        call('UNLINK', at(timer_name(id, timer)))
        call('ZREM', at('timers:due'), due_name(id, timer))
    end
    for _, activity in ipairs(call('SMEMBERS', at(of_run(id, 'activities')))) do
        call('UNLINK', at(activity_name(activity)))
    end
    for _, what in ipairs(OWNED) do
        if what ~= 'keys' and not (keeps and keeps[what]) then
            call('UNLINK', at(of_run(id, what)))
        end
    end
    runs[id], changed[id] = false, nil
end

-- Delete a tree as planned. `keeps` names what the root's id keeps for its next life.
local function delete_tree(id, tree, keeps)
    for _, one in ipairs(tree.ids) do
        delete_run(one, one == id and keeps or nil)
    end
    for _, one in ipairs(tree.keyed) do
        delete_keys(one)
    end
    if tree.deletion then
        set_deletion(id, { kind = tree.deletion })
    end
end
