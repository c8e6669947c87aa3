-- How one commit is decided, what it will touch, and how it is written.

local EMPTY = {}

local function each(list)
    return ipairs(list or EMPTY)
end

local function replaces(commit)
    return commit.fresh and commit.creation == 'replace'
end

-- Why a commit cannot be written, as {what, …}; nil if it can, or if keys are wanted first.
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
        if not commit.fresh then
            return { 'notfound' }
        end
        head = { uid = commit.fresh.uid, status = 'pending', sequence = '0', revision = '0',
            token = '0' }
    elseif commit.fresh and commit.creation == 'new' then
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
    if replaces(commit) and commit.fresh.uid == head.uid and head.revision ~= '0' then
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

-- Ask for every key that `write` will touch; the tree that it replaces.
local function plan(commit)
    local run, id = find(commit.run), commit.run
    if run == nil then
        return nil
    end
    local tree
    local is_new = commit.fresh and (not run or commit.creation == 'replace')
    if is_new then
        need_birth(commit.fresh)
        if run then
            local spares = not TERMINAL[commit.fresh.status]
            tree = plan_tree(id, spares and (commit.carry_tree and 'all' or 'open'))
        end
    end
    local status = is_new and commit.fresh.status or run.status
    if commit.force or commit.hold then
        need('token')
        need_shelves()
    end
    if commit.events then
        need(of_run(id, 'seq'))
        need(of_run(id, 'events'))
        need(of_run(id, 'event-ids'))
    end
    if commit.consumes or commit.parks or commit.release or commit.carry then
        need(of_run(id, 'inbox'))
        need_shelves()
    end
    local change = commit.change
    if change then
        if change.status or change.workflow then
            need_files(status)
            need_files(change.status or status)
            need_shelves()
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
        elseif find(start.fresh.id) == false then
            need_birth(start.fresh)
            if TERMINAL[start.fresh.status] then
                need_end(start.fresh.id)
            end
            -- An item of the same commit may be for the child.
            need(of_run(start.fresh.id, 'inbox'))
            need(of_run(start.fresh.id, 'items'))
        end
    end
    need_parts(commit)
    return tree
end

local function own(run, owner, lease)
    unshelve(run)
    set(run, 'token', next_token())
    set(run, 'owner', owner)
    set(run, 'until', lease and int(now + lease))
    shelve(run)
end

local function life(commit, tree)
    local run = find(commit.run)
    if run and not replaces(commit) then
        return run
    end
    local carried = run and commit.carry and run.inbox
    if run then
        local keeps = { inbox = carried, items = carried, facts = (tree.spared or 0) > 0 }
        forget_tree(run.id, tree, keeps)
    end
    local born = begin(commit.fresh)
    if carried then
        set(born, 'inbox', carried)
        forget_receipts(born)
        if has_unseen(born, '0') then
            unshelve(born)
            set(born, 'runnable', now_text)
            shelve(born)
        end
    end
    return born
end

local function apply(run, change)
    local status, workflow = change.status or run.status, change.workflow or run.workflow
    if status ~= run.status or workflow ~= run.workflow then
        unfile(run)
        unshelve(run)
        set(run, 'status', status)
        set(run, 'workflow', workflow)
        file(run)
        shelve(run)
    end
    if change.runnable then
        unshelve(run)
        set(run, 'runnable', change.runnable ~= '' and from_now(change.runnable) or nil)
        shelve(run)
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

-- Apply `release`, unless an item the owner has not seen forbids rest: then true.
local function rest(run, commit)
    if is_ended(run) or not (commit.release or commit.parks) then
        return false  -- the end of a run sees to all of it
    end
    unshelve(run)
    local is_unseen = has_unseen(run, commit.seen)
    if is_unseen then
        set(run, 'runnable', now_text)
    elseif commit.release then
        set(run, 'owner', nil)
        set(run, 'until', nil)
    end
    shelve(run)
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
    -- Children first: an item may be for one of them.
    for _, start in each(commit.starts) do
        if start.to then
            post(start.entry)
        elseif not find(start.fresh.id) then
            local child = begin(start.fresh)
            append(child, start.events)
            if is_ended(child) then
                end_run(child)
            end
        end
    end
    local undelivered = {}
    for _, send in each(commit.sends) do
        if send.to then
            post(send.entry)
        else
            local answer = deliver(send)[1]
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
