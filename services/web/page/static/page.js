// The page's own script, small on purpose. Without it every screen is whole; with it a screen is renewed in place.
(() => {
  'use strict'
  const $ = (s, e = document) => e.querySelector(s), $$ = (s, e = document) => [...e.querySelectorAll(s)]
  const root = document.documentElement, prefix = document.body.dataset.prefix
  const isTyping = t => t && (/TEXTAREA|SELECT/.test(t.tagName) || (t.tagName === 'INPUT' && t.type !== 'checkbox'))
  const isHalfTyped = t => t.tagName === 'INPUT' && !/checkbox|hidden/.test(t.type) && t.value !== t.defaultValue

  // ---- colours: a cookie, so that the first picture is right
  const theme = value => {
    value === 'auto' ? delete root.dataset.theme : root.dataset.theme = value
    $$('[data-theme-set]').forEach(b => b.setAttribute('aria-pressed', b.dataset.themeSet === value))
    document.cookie = `theme=${value}; path=/; max-age=31536000; samesite=strict`
  }

  // ---- selection: a set of ids, not of rows; it outlives pages and updates
  const list = () => $('form[data-list]')
  const chosenKey = () => `chosen ${list().getAttribute('action')}`
  const chosen = () => new Map(JSON.parse(sessionStorage.getItem(chosenKey()) || '[]'))
  const keep = map => sessionStorage.setItem(chosenKey(), JSON.stringify([...map]))
  const boxes = () => $$('tbody input[type=checkbox]:not(:disabled)', list())
  function showChosen() {
    if (!list()) return
    const map = chosen(), bar = $('#bulk')
    boxes().forEach(b => { b.checked = map.has(b.value); if (b.checked) map.set(b.value, 'live' in b.dataset) })
    const all = $('[data-all]'), on = boxes().filter(b => b.checked).length
    if (all) { all.checked = on > 0 && on === boxes().length; all.indeterminate = on > 0 && on < boxes().length }
    if (!bar) return
    bar.classList.toggle('on', map.size > 0)
    $('[data-clear]').hidden = false
    $('[data-chosen]').textContent = `${map.size} selected`
    const live = [...map.values()].filter(Boolean).length, told = $('[data-chosen-live]')
    if (told) {
      told.textContent = live === map.size ? 'all of them live' : `${live} of them live`
      $('[data-cancel-word]').textContent = `Cancel ${live}`
      $('[data-cancel]').disabled = !live
    } else $('[data-cancel-word]').textContent = `Send ${map.size} again`
  }
  const choose = (box, on) => { const map = chosen(); on ? map.set(box.value, 'live' in box.dataset) : map.delete(box.value); keep(map) }
  let lastBox = null

  // ---- updates: the screen is asked for again, and what has changed is changed in place
  const turn = Number(document.body.dataset.turn)
  let tag = null, lost = 0, under = false, since = Date.now()
  const frozen = () => list() && (list().matches(':hover') || list().contains(document.activeElement) || (list().dataset.upto !== undefined && chosen().size) || scrollY > 40)
  const morphed = {
    morphStyle: 'outerHTML', ignoreActiveValue: true,
    callbacks: {
      beforeNodeMorphed: (old, fresh) => !(old.nodeType === 1 && (old.matches('input, textarea, select') && (old === document.activeElement || isHalfTyped(old)) || old.matches('dialog') || old.matches('[data-keep]'))),
      beforeAttributeUpdated: (name, node) => !(name === 'open' && node.tagName === 'DETAILS') && !(name === 'checked') && !(name === 'hidden' && node.matches('[data-clear]')) && !(name === 'class' && node.id === 'bulk'),
    },
  }
  async function renew(where, isSoft) {
    if (under) return
    under = true
    try {
      const address = new URL(where || location.href)
      if (!isSoft && frozen() && list().dataset.upto) address.searchParams.set('upto', list().dataset.upto)
      address.hash = ''
      const answer = await fetch(address, { headers: tag && !where ? { 'If-None-Match': tag } : {}, cache: 'no-store', signal: AbortSignal.timeout(5000) })
      if (answer.status === 304) { fresh(true); return }
      if (answer.status === 401) { location.reload(); return } // the login is over
      if (!answer.ok && !answer.headers.get('content-type')?.includes('html')) { fresh(false, `The web service answers ${answer.status}`); return }
      tag = answer.headers.get('ETag')
      show(await answer.text(), isSoft)
      fresh(true)
    } catch { fresh(false) } finally { under = false }
  }
  function show(html) {
    const made = new DOMParser().parseFromString(html, 'text/html')
    document.title = made.title
    const log = $('[data-follow]'), atEnd = log && log.scrollTop + log.clientHeight > log.scrollHeight - 30
    for (const id of ['side', 'fresh', 'strip', 'main']) {
      const old = document.getElementById(id), news = made.getElementById(id)
      if (old && news && old.outerHTML !== news.outerHTML) Idiomorph.morph(old, news, morphed)
    }
    theme((document.cookie.match(/theme=(\w+)/) || [])[1] || 'auto')
    showChosen(); toEnd(atEnd)
  }
  const toEnd = is => { const log = $('[data-follow]'); if (log && is) log.scrollTop = log.scrollHeight }
  function fresh(isThere, why = 'The web service does not answer') {
    if (isThere) {
      if (lost) { lost = 0; $$('form [data-cancel], .acts .btn').forEach(b => b.removeAttribute('aria-disabled')); tag = null }
      since = Date.now()
      return
    }
    if (Date.now() - since < 5000 && !lost) return
    lost ||= since
    const at = new Date(lost).toISOString().slice(11, 19), box = $('#fresh')
    box.dataset.state = 'off'; $('b', box).textContent = 'Not connected'; $('.l', box).textContent = `shows ${at}`
    $('#strip').innerHTML = `<div class="strip bad" role="status"><span><b>Not connected.</b> ${why}. You see ${at} UTC; nothing is updated. It is tried again each second.</span></div>`
    $$('form [data-cancel], .acts .btn').forEach(b => { b.setAttribute('aria-disabled', 'true'); b.title = why })
  }
  if (turn) setInterval(() => { if (!document.hidden && document.activeElement?.tagName !== 'SELECT') renew() }, turn) // an open list would close
  document.addEventListener('visibilitychange', () => { if (!document.hidden && turn) renew() })
  addEventListener('popstate', () => renew(location.href, true))

  // ---- clicks
  document.addEventListener('click', async e => {
    const set = e.target.closest('[data-theme-set]'); if (set) theme(set.dataset.themeSet)
    const copy = e.target.closest('[data-copy]')
    if (copy) { e.preventDefault(); navigator.clipboard?.writeText(copy.dataset.copy).then(() => { copy.title = 'Copied' }) }
    const soft = e.target.closest('a[data-soft]')
    if (soft && !e.ctrlKey && !e.metaKey && !e.shiftKey) { e.preventDefault(); history.pushState(null, '', soft.href); await renew(soft.href, true) }
    const ask = e.target.closest('a[data-dialog]')
    if (ask && !e.ctrlKey && !e.metaKey && ask.getAttribute('aria-disabled') !== 'true') { e.preventDefault(); if (!await question(ask, ask.href)) location.href = ask.href }
    const open = e.target.closest('[data-close]') && e.target.closest('dialog')
    if (open) { e.preventDefault(); open.close() } // on a page of its own it is a link back
    if (e.target.closest('[data-clear]')) { keep(new Map()); showChosen(); (lastBox?.isConnected ? lastBox : boxes()[0] || $('#main')).focus() }
    if (e.target.closest('[aria-disabled="true"]')) e.preventDefault()
    const box = e.target.closest('form[data-list] tbody input[type=checkbox]')
    if (box) {
      const all = boxes()
      if (e.shiftKey && lastBox && all.includes(lastBox)) {
        const [from, to] = [all.indexOf(lastBox), all.indexOf(box)].sort((a, b) => a - b)
        all.slice(from, to + 1).forEach(b => choose(b, box.checked))
      } else choose(box, box.checked)
      lastBox = box; showChosen()
    }
    if (e.target.matches?.('[data-all]')) { boxes().forEach(b => choose(b, e.target.checked)); showChosen() }
    $$('details.fresh[open]').forEach(f => { if (!f.contains(e.target)) f.open = false })
  })
  document.addEventListener('change', e => { if (e.target.matches('[data-submit]')) e.target.form.requestSubmit() })
  // what is selected goes, also on other pages of the list; the answer is a question
  document.addEventListener('submit', e => {
    if (e.target.closest('dialog')?.dataset.of === 'list') keep(new Map())
    if (!e.target.matches('form[data-list]')) return
    e.preventDefault()
    const body = new FormData(e.target), there = new Set(boxes().map(b => b.value)), name = boxes()[0]?.name
    for (const [id] of chosen()) if (!there.has(id)) body.append(name, id)
    question(e.submitter, e.target.action, { method: 'POST', body }, 'list').then(asked => { if (!asked) sendAsPage(e.target, body) })
  })
  const sendAsPage = (form, body) => {
    for (const [name, value] of body) if (!form.elements[name]) form.append(Object.assign(document.createElement('input'), { type: 'hidden', name, value }))
    form.submit()
  }
  // a question before what cannot be undone: the page that asks it, in a dialog; false: it is none
  async function question(from, address, how, of = '') {
    let answer, made
    try {
      answer = await fetch(address, how)
      made = new DOMParser().parseFromString(await answer.text(), 'text/html')
    } catch { fresh(false); return true }
    const form = $('#question', made)
    if (!form) return false
    const dialog = document.createElement('dialog')
    dialog.setAttribute('aria-labelledby', 'question-h'); dialog.dataset.of = of; dialog.append(form)
    document.body.append(dialog)
    dialog.addEventListener('close', () => { dialog.remove(); (from?.isConnected ? from : $('#main')).focus() })
    dialog.showModal()
    return true
  }

  // ---- keys
  let g = 0
  const rows = () => $$('main tbody tr').filter(row => $('a.name', row))
  document.addEventListener('keydown', e => {
    if (e.ctrlKey || e.metaKey || e.altKey) return
    if ($('dialog[open]')) return // its keys are the browser's: Escape closes it
    if (isTyping(e.target)) { if (e.key === 'Escape') e.target.blur(); return }
    if (e.key === 'Escape') {
      const told = $('details.fresh[open]'), back = $('main #question [data-close]')
      if (told) { told.open = false; $('summary', told).focus(); return }
      if (back) { location.href = back.href; return }
      if (list()) { keep(new Map()); showChosen() }
    }
    if (e.key === '/') { e.preventDefault(); ($('[data-find]') || $('#find')).focus() }
    if (e.key === '?') $('#keys').showModal()
    if (e.key === 'n') location.href = `${prefix}/submit`
    if (Date.now() - g < 900) {
      const to = { o: '/', j: '/jobs', q: '/queue', t: '/taskmanagers', s: '/services', l: '/leaders', d: '/letters' }[e.key]
      g = 0
      if (to) { location.href = prefix + to; return }
    }
    if (e.key === 'g') g = Date.now()
    const way = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[e.key], all = rows(), at = all.indexOf(document.activeElement?.closest?.('tr'))
    if (way && all.length && (e.key.length === 1 || at >= 0)) { e.preventDefault(); $('a.name', all[Math.max(0, Math.min(all.length - 1, at + way))]).focus() }
    if (e.key === 'x' && at >= 0) { const box = $('input[type=checkbox]:not(:disabled)', all[at]); if (box) { choose(box, !box.checked); showChosen() } }
  })

  // ---- submit: checked while it is typed
  const form = $('form[data-check]')
  if (form) {
    const text = $('#graph-text'), files = $('#files')
    let timer = 0, number = 0
    const check = async () => {
      const mine = ++number, body = new FormData()
      body.append('token', form.elements.token.value); body.append('graph', text.value); body.append('check', 'yes'); body.append('id', form.elements.id.value)
      ;[...files.files].forEach(f => body.append('name', f.name))
      try {
        const made = new DOMParser().parseFromString(await (await fetch(form.action, { method: 'POST', body })).text(), 'text/html')
        if (mine !== number) return
        for (const id of ['told', 'gutter', 'overlay', 'problems', 'plan']) { const news = made.getElementById(id); if (news) Idiomorph.morph(document.getElementById(id), news) }
        const send = made.getElementById('send')
        for (const name of ['aria-disabled', 'title']) send?.hasAttribute(name) ? $('#send').setAttribute(name, send.getAttribute(name)) : $('#send').removeAttribute(name)
        text.rows = Math.max(18, text.value.split('\n').length)
        fresh(true)
      } catch { fresh(false) }
    }
    const soon = () => { clearTimeout(timer); timer = setTimeout(check, 250) }
    text.addEventListener('input', soon); files.addEventListener('change', soon)
    form.addEventListener('keydown', e => {
      if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) { e.preventDefault(); if ($('#send').getAttribute('aria-disabled') !== 'true') form.requestSubmit($('#send')) }
    })
    document.addEventListener('dragover', e => e.preventDefault())
    document.addEventListener('drop', async e => {
      e.preventDefault()
      const given = new DataTransfer(); [...files.files].forEach(f => given.items.add(f))
      for (const f of e.dataTransfer.files) /\.(ya?ml|json)$/.test(f.name) ? text.value = await f.text() : given.items.add(f)
      files.files = given.files; check()
    })
  }
  showChosen(); toEnd(true)
})()
