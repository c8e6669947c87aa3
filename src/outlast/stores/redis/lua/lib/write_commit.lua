-- One commit: its decision, the keys that it needs, and its write.

local EMPTY = {}

local function each(list)
    return ipairs(list or EMPTY)
end

local function replaces(commit)
    return commit.new_run and commit.creation == 'replace'
end

-- The refusal of a commit, as {what, …}; nil if there is none, or if keys are wanted first.
local function refusal(commit)
    local run = find(commit.run)
    if run == nil then
        return nil
    end
    if run and run.commit == commit.id then
        return { 'again', run.uid, run.sequence, run.revision, run.token }
    end
    local head = run
    if not run then
        if not commit.new_run then
            return { 'notfound' }
        end
        head = { uid = commit.new_run.uid, status = 'pending', sequence = '0', revision = '0',
            token = '0' }
    elseif commit.new_run and commit.creation == 'new' then
        return { 'exists', run.uid }
    end
    if commit.uid and commit.uid ~= head.uid then
        return { 'fenced', head.token, head.uid, head.revision }
    end
    if TERMINAL[head.status] and commit.reopens and not replaces(commit) then
        return { 'closed', head.status }
    end
    if not commit.force and (head.token ~= '0' or commit.token) and commit.token ~= head.token then
        return { 'fenced', head.token, head.uid, head.revision }
    end
    if commit.expected and commit.expected ~= head.sequence then
        return { 'conflict', 'sequence', head.sequence, head.uid, head.revision }
    end
    if commit.revision and commit.revision ~= head.revision then
        return { 'conflict', 'revision', head.revision, head.uid, head.revision }
    end
    if replaces(commit) and commit.new_run.uid == head.uid and head.revision ~= '0' then
        return { 'exists', head.uid }
    end
    if run and commit.creation ~= 'replace' and commit.events then
        local ids = need(of_run(commit.run, 'event-ids'))
        for i = 1, ids and #commit.events or 0, 3 do
            local sequence = call('HGET', ids, commit.events[i])
            if sequence then
                return { 'duplicate', commit.events[i], sequence }
            end
        end
    end
    for n, claim in each(commit.finishes) do
        if need('task:state') and not held_task(claim) then
            return { 'lost', int(n) }
        end
    end
    return nil
end

-- Require all keys that `write` uses; the tree that it replaces.
local function plan(commit)
    local run, id = find(commit.run), commit.run
    if run == nil then
        return nil
    end
    local tree
    local is_new = commit.new_run and (not run or commit.creation == 'replace')
    if is_new then
        need_creation(commit.new_run)
        if run then
            local spares = not TERMINAL[commit.new_run.status]
            tree = plan_tree(id, spares and (commit.carry_tree and 'all' or 'open'))
        end
    end
    local status = is_new and commit.new_run.status or run.status
    if commit.force or commit.hold then
        need('token')
        need_claim_indexes()
    end
    if commit.events then
        need(of_run(id, 'seq'))
        need(of_run(id, 'events'))
        need(of_run(id, 'event-ids'))
    end
    if commit.consumes or commit.parks or commit.release or commit.carry then
        need(of_run(id, 'inbox'))
        need_claim_indexes()
    end
    local change = commit.change
    if change then
        if change.status or change.workflow then
            need_status_indexes(status)
            need_status_indexes(change.status or status)
            need_claim_indexes()
        end
        if change.tags then
            need('idx:attr')
        end
        status = change.status or status
    end
    if TERMINAL[status] and (is_new or not run.ended) then
        need_end(id)
    end
    for _, send in each(commit.sends) do
        if send.to then
            need_outbox()
        elseif send.run ~= id or run then
            need_delivery(send)
        else
            need_delivery({ run = id })
            need(of_run(id, 'inbox'))
            need(of_run(id, 'items'))
        end
    end
    for _, start in each(commit.starts) do
        if start.to then
            need_outbox()
        elseif find(start.new_run.id) == false then
            need_creation(start.new_run)
            if TERMINAL[start.new_run.status] then
                need_end(start.new_run.id)
            end
            -- An item of the same commit may be for the child.
            need(of_run(start.new_run.id, 'inbox'))
            need(of_run(start.new_run.id, 'items'))
        end
    end
    need_contents(commit)
    return tree
end

local function own(run, owner, lease)
    unindex_claim(run)
    set(run, 'token', next_token())
    set(run, 'owner', owner)
    set(run, 'until', lease and int(now + lease))
    index_claim(run)
end

local function life(commit, tree)
    local run = find(commit.run)
    if run and not replaces(commit) then
        return run
    end
    local carried = run and commit.carry and run.inbox
    if run then
        local keeps = { inbox = carried, items = carried, facts = (tree.spared or 0) > 0 }
        delete_tree(run.id, tree, keeps)
    end
    local born = create_run(commit.new_run)
    if carried then
        set(born, 'inbox', carried)
        trim_receipts(born)
        if has_unseen(born, '0') then
            unindex_claim(born)
            set(born, 'runnable', now_text)
            index_claim(born)
        end
    end
    return born
end

local function apply(run, change)
    local status, workflow = change.status or run.status, change.workflow or run.workflow
    if status ~= run.status or workflow ~= run.workflow then
        unindex_status(run)
        unindex_claim(run)
        set(run, 'status', status)
        set(run, 'workflow', workflow)
        index_status(run)
        index_claim(run)
    end
    if change.runnable then
        unindex_claim(run)
        set(run, 'runnable', change.runnable ~= '' and from_now(change.runnable) or nil)
        index_claim(run)
    end
    if change.tags then
        tag(run, tags_of(run), 'ZREM')
        set(run, 'tags', change.tags)
        tag(run, tags_of(run), 'ZADD')
    end
    for i = 1, #(change.set or EMPTY), 2 do
        run.dirty[change.set[i]] = change.set[i + 1]
    end
    for _, name in each(change.unset) do
        run.dirty[name] = false
    end
end

-- Apply `release`, unless there is an item that the owner has not read: then true.
local function rest(run, commit)
    if is_ended(run) or not (commit.release or commit.parks) then
        return false  -- the end of a run sees to all of it
    end
    unindex_claim(run)
    local is_unseen = has_unseen(run, commit.seen)
    if is_unseen then
        set(run, 'runnable', now_text)
    elseif commit.release then
        set(run, 'owner', nil)
        set(run, 'until', nil)
    end
    index_claim(run)
    return is_unseen
end

local function write(commit, tree)
    local run = life(commit, tree)
    local was_open = not run.ended
    if commit.force then
        own(run, nil, nil)
    end
    if commit.hold then
        own(run, commit.hold.owner, commit.hold.lease)
    end
    append(run, commit.events)
    for _, number in each(commit.consumes) do
        call('ZREMRANGEBYSCORE', at(of_run(run.id, 'inbox')), number, number)
    end
    if commit.change then
        apply(run, commit.change)
    end
    local still = rest(run, commit)
    set(run, 'revision', int(tonumber(run.revision) + 1))
    set(run, 'commit', commit.id)
    if run.updated ~= now_text then
        call('ZREM', at('idx:updated'), sortable(run.updated) .. run.id)
        set(run, 'updated', now_text)
        call('ZADD', at('idx:updated'), '0', sortable(now_text) .. run.id)
    end
    -- Children first: an item may be addressed to one of them.
    for _, start in each(commit.starts) do
        if start.to then
            put_in_outbox(start.entry)
        elseif not find(start.new_run.id) then
            local child = create_run(start.new_run)
            append(child, start.events)
            if is_ended(child) then
                end_run(child)
            end
        end
    end
    local undelivered = {}
    for _, send in each(commit.sends) do
        if send.to then
            put_in_outbox(send.entry)
        else
            local answer = deliver_item(send)[1]
            if answer ~= 'ok' and answer ~= 'again' then
                undelivered[#undelivered + 1] = send.id
            end
        end
    end
    local fired = write_parts(run, commit)
    if was_open and is_ended(run) then
        end_run(run)
    end
    return { 'ok', run.uid, run.sequence, run.revision, run.token, still and '1' or '0', fired,
        undelivered }
end
