// The page: what its controls do, and the one request that runs.
import {Announcer} from './announcer.js';
import {ApiError, apiUrl, listModels, streamAnswer} from './api.js';
import {count} from './format.js';
import {checkSeed, checkStops, ParameterPanel, requestBody, showError} from './parameters.js';
import {bodyJson, curlCommand, pythonProgram} from './snippets.js';
import {copyText, fitHeight, Thread, Turn} from './thread.js';
import {TokenTooltip} from './tokens.js';

const $ = (id) => document.getElementById(id);

const SAMPLES = {
  chat: ['Why is the sky blue?', 'Write a haiku about two wheels.', 'Name three uses of a paper clip.'],
  completion: ['The capital of France is', 'Once upon a time, in a village by the sea,', 'def fibonacci(n):'],
};

const tooltip = new TokenTooltip($('tooltip'));
const announcer = new Announcer($('announcer'));
const threads = {chat: new Thread($('thread')), completion: new Thread($('completion'))};
const drafts = {chat: '', completion: ''};
let mode = 'chat';
let showsTokens = false;
let running = null;  // the AbortController of the request that runs
let knownModels = [];

const actions = {
  tooltip,
  busy: () => running !== null,
  edited(turn) {
    answerBehind(threads.chat.turns.indexOf(turn) + 1);
  },
  regenerate(turn) {
    if (mode === 'completion') complete();
    else answerBehind(threads.chat.turns.indexOf(turn));
  },
};

const panel = new ParameterPanel($('parameters'), () => showState());

function checkedText(id, check) {
  const {value, error} = check($(id).value);
  showError($(id), $(`${id}-error`), error ?? null);
  return value;
}

// What the next request is made of; null where a control has an error.
function readSettings() {
  const stops = checkedText('stops', checkStops);
  const seed = checkedText('seed', checkSeed);
  if (stops === undefined || seed === undefined || !panel.valid) return null;
  return {model: $('model').value, values: panel.values, stops, seed};
}

// messages: of the turns that are to be answered.
function chatInput(messages) {
  const system = $('system').value;
  return {messages: system.trim() === '' ? messages : [{role: 'system', content: system}, ...messages]};
}

function pathOf(input) {
  return input.messages !== undefined ? 'chat/completions' : 'completions';
}

function nearEnd() {
  const main = $('main');
  return main.scrollHeight - main.scrollTop - main.clientHeight < 80;
}

function scrollToEnd() {
  $('main').scrollTop = $('main').scrollHeight;
}

// Answers `input` in a new turn. Resolves to whether anything came of it.
async function ask(input, role) {
  const settings = readSettings();
  if (settings === null) {
    showNotice('A setting is out of its range.');
    return false;
  }
  showNotice('');
  const json = bodyJson(requestBody({...settings, input}), settings.seed);
  running = new AbortController();
  const turn = new Turn(role, '', actions);
  turn.showTokens(showsTokens);
  turn.begin(performance.now());
  if (settings.seed !== '') turn.numbers.seed = settings.seed;
  threads[mode].push(turn);
  showState();
  scrollToEnd();
  let failure = null;
  try {
    const request = {path: pathOf(input), json, key: $('api-key').value, signal: running.signal};
    for await (const chunk of streamAnswer(request)) {
      const follow = nearEnd();
      turn.add(chunk, performance.now());
      announcer.add(chunk.text);
      if (follow) scrollToEnd();
    }
  } catch (error) {
    if (error.name === 'AbortError') {
      turn.numbers.finish = 'stopped';
    } else {
      turn.numbers.finish = 'error';
      failure = error instanceof ApiError ? error.message : `This page failed: ${error.message}`;
    }
  }
  running = null;
  const came = turn.numbers.tokens > 0 || turn.text !== '' || failure === null;
  if (failure !== null) {
    if (came) turn.fail(failure);
    else showNotice(failure);
  }
  const follow = nearEnd();
  turn.end();
  announcer.finish(came ? `Answer of ${turn.numbers.tokens} tokens.` : '');
  if (!came) threads[mode].cutFrom(threads[mode].turns.length - 1);
  if (follow) scrollToEnd();
  showState();
  return came;
}

// Answers the turns before this one again. The turns behind stay if nothing comes.
async function answerBehind(index) {
  if (running !== null) return;
  const thread = threads.chat;
  const cut = thread.cutFrom(index);
  const came = await ask(chatInput(thread.messages()), 'assistant');
  if (!came) for (const turn of cut) thread.push(turn);
  showState();
}

async function chat() {
  const text = $('prompt').value;
  if (running !== null || text.trim() === '') return;
  const thread = threads.chat;
  const at = thread.turns.length;
  thread.push(new Turn('user', text, actions));
  setPrompt('');
  if (await ask(chatInput(thread.messages()), 'assistant')) return;
  thread.cutFrom(at);
  if ($('prompt').value === '') setPrompt(text);
  showState();
}

async function complete() {
  const prompt = $('prompt').value;
  if (running !== null || prompt === '') return;
  const thread = threads.completion;
  const before = thread.cutFrom(0);
  if (await ask({prompt}, 'completion')) return;
  for (const turn of before) thread.push(turn);
  showState();
}

function send() {
  return mode === 'chat' ? chat() : complete();
}

function stop() {
  running?.abort();
}

function showNotice(text) {
  $('notice').textContent = text;
  $('notice').hidden = text === '';
}

function setPrompt(text) {
  $('prompt').value = text;
  fitHeight($('prompt'));
  showState();
}

function showState() {
  const thread = threads[mode];
  const busy = running !== null;
  const focused = document.activeElement;
  $('empty').hidden = thread.turns.length > 0;
  $('stop').hidden = !busy;
  $('send').hidden = busy;
  $('send').disabled = $('prompt').value.trim() === '' || readSettings() === null;
  $('clear').disabled = busy || thread.turns.length === 0;
  for (const radio of $('mode').querySelectorAll('input')) radio.disabled = busy;
  // The focus of a button that goes.
  if (busy && [$('send'), document.body].includes(focused)) $('stop').focus();
  if (!busy && focused === $('stop')) $('prompt').focus();
}

function showTokens(on) {
  showsTokens = on;
  $('toggle-tokens').setAttribute('aria-pressed', String(on));
  document.body.classList.toggle('shows-tokens', on);
  tooltip.hide();
  for (const thread of Object.values(threads)) thread.showTokens(on);
}

function showMode(next) {
  drafts[mode] = $('prompt').value;
  mode = next;
  document.body.dataset.mode = mode;
  const isChat = mode === 'chat';
  threads.chat.hidden = !isChat;
  threads.completion.hidden = isChat;
  $('system-field').hidden = !isChat;
  $('prompt-label').textContent = isChat ? 'Message' : 'Prompt';
  $('prompt').placeholder = isChat ? 'Message' : 'A text to go on with';
  $('send').textContent = isChat ? 'Send' : 'Complete';
  // The completion stands behind its prompt, in the order of reading and of Tab.
  if (isChat) $('main').append($('dock'));
  else $('main').prepend($('dock'));
  showSamples();
  setPrompt(drafts[mode]);
}

function showSamples() {
  $('samples').replaceChildren(...SAMPLES[mode].map((text) => {
    const item = document.createElement('li');
    const choose = Object.assign(document.createElement('button'), {type: 'button', textContent: text});
    choose.addEventListener('click', () => {
      setPrompt(text);
      $('prompt').focus();
    });
    item.append(choose);
    return item;
  }));
}

function showModels() {
  const chosen = $('model').value;
  $('model').replaceChildren(...knownModels.map(({id}) => new Option(id, id)));
  if (knownModels.some(({id}) => id === chosen)) $('model').value = chosen;
  if (knownModels.length === 0) $('model').append(new Option('No model is served', ''));
  showModelLine();
}

function showModelLine() {
  const model = knownModels.find(({id}) => id === $('model').value);
  const about = model?.tandem ?? model ?? {};
  const length = about.context_length ?? model?.context_length;
  const facts = [model?.id, typeof length === 'number' ? `context of ${count(length)} tokens` : null];
  $('model-line').textContent = facts.filter((fact) => typeof fact === 'string').join(' · ');
}

async function loadModels() {
  try {
    knownModels = await listModels($('api-key').value);
    showNotice('');
  } catch (error) {
    knownModels = [];
    showNotice(error instanceof ApiError ? error.message : `This page failed: ${error.message}`);
  }
  showModels();
}

function showCode() {
  const settings = readSettings();
  if (settings === null) {
    $('code-text').textContent = 'A setting is out of its range.';
    return;
  }
  const isChat = mode === 'chat';
  const text = $('prompt').value;
  let messages = threads.chat.messages();
  if (text.trim() !== '') messages = [...messages, {role: 'user', content: text}];
  else if (messages.at(-1)?.role === 'assistant') messages = messages.slice(0, -1);
  const input = isChat ? chatInput(messages) : {prompt: text};
  const body = requestBody({...settings, input});
  const hasKey = $('api-key').value !== '';
  const request = {url: apiUrl(pathOf(input)), base: apiUrl('').replace(/\/$/, ''), chat: isChat, body,
                   seed: settings.seed, hasKey};
  const language = document.querySelector('input[name="language"]:checked').value;
  $('code-text').textContent = language === 'curl' ? curlCommand(request) : pythonProgram(request);
  $('code-note').textContent = hasKey ? 'Reads the key from TANDEM_API_KEY.' : '';
}

const THEMES = ['auto', 'light', 'dark'];
const THEME_LABELS = {auto: 'Auto', light: 'Light', dark: 'Dark'};

function storedTheme() {
  try {
    return localStorage.getItem('tandem.theme');
  } catch {
    return null;  // of a browser that stores nothing
  }
}

function showTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $('theme').textContent = THEME_LABELS[theme];
  $('theme').setAttribute('aria-label', `Colours: ${THEME_LABELS[theme]}`);
}

function nextTheme() {
  const theme = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
  showTheme(theme);
  try {
    localStorage.setItem('tandem.theme', theme);
  } catch {
    // It holds until the page is left.
  }
}

function openDialog(id) {
  tooltip.hide();
  if (!$(id).open) $(id).showModal();
}

function showSettings(on) {
  document.body.classList.toggle('shows-settings', on);
  $('show-settings').setAttribute('aria-expanded', String(on));
  if (on) $('hide-settings').focus();
  else $('show-settings').focus();
}

function onKey(event) {
  const typing = event.target.matches('textarea, select, input:not([type="radio"])');
  const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
  if (document.querySelector('dialog[open]') !== null) return;
  if (event.key === 'Escape') {
    if (tooltip.shown) tooltip.hide();
    else if (document.body.classList.contains('shows-settings')) showSettings(false);
    else stop();
  } else if ((event.ctrlKey && event.key === '/') || (event.key === '?' && !typing)) {
    event.preventDefault();
    openDialog('keys');
  } else if (plain && !typing && event.key.toLowerCase() === 't') {
    showTokens(!showsTokens);
  } else if (plain && !typing && event.key === '/') {
    event.preventDefault();
    $('prompt').focus();
  }
}

function listen() {
  $('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    send();
  });
  $('prompt').addEventListener('input', () => {
    fitHeight($('prompt'));
    showState();
  });
  $('prompt').addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!$('send').disabled) send();
  });
  $('stop').addEventListener('click', stop);
  $('clear').addEventListener('click', () => {
    threads[mode].cutFrom(0);
    showNotice('');
    showState();
    $('prompt').focus();
  });
  for (const radio of $('mode').querySelectorAll('input')) {
    radio.addEventListener('change', () => showMode(radio.value));
  }
  $('toggle-tokens').addEventListener('click', () => showTokens(!showsTokens));
  $('model').addEventListener('change', showModelLine);
  $('api-key').addEventListener('change', loadModels);
  $('stops').addEventListener('input', showState);
  $('seed').addEventListener('input', showState);
  $('reset').addEventListener('click', () => {
    for (const id of ['system', 'stops', 'seed']) $(id).value = '';
    panel.reset();
  });
  $('show-settings').addEventListener('click', () => showSettings(true));
  $('hide-settings').addEventListener('click', () => showSettings(false));
  $('show-code').addEventListener('click', () => {
    showCode();
    openDialog('code');
  });
  $('language').addEventListener('change', showCode);
  $('copy-code').addEventListener('click', async () => {
    $('copy-code').textContent = await copyText($('code-text').textContent, $('code-text'));
    setTimeout(() => { $('copy-code').textContent = 'Copy'; }, 1500);
  });
  $('show-keys').addEventListener('click', () => openDialog('keys'));
  $('theme').addEventListener('click', nextTheme);
  for (const close of document.querySelectorAll('[data-close]')) {
    close.addEventListener('click', () => close.closest('dialog').close());
  }
  document.addEventListener('keydown', onKey);
}

const stored = storedTheme();
showTheme(THEMES.includes(stored) ? stored : 'auto');
listen();
showMode('chat');
loadModels();
