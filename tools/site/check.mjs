// check.mjs fails if a page of docs is missing in the built site, or if the site's
// search has no entry for the page. VitePress itself fails on a dead link.
import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

const root = join(import.meta.dirname, '../..')
const site = join(root, 'bin/site')
const chunks = join(site, 'assets/chunks')
const index = readdirSync(chunks)
  .filter((name) => name.includes('localSearchIndex'))
  .map((name) => readFileSync(join(chunks, name), 'utf8'))
  .join('')
const files = execFileSync('git', ['ls-files', 'README.md', 'docs/*.md'], { cwd: root, encoding: 'utf8' }).split('\n').filter(Boolean)
const wrong = []
for (const file of files) {
  const page = file.replace(/(^|\/)README\.md$/, '$1index.md').replace(/\.md$/, '')
  if (!existsSync(join(site, page + '.html'))) wrong.push(`${file}: the site has no page ${page}.html`)
  const address = '/' + page.replace(/(^|\/)index$/, '$1')
  if (!index.includes(address + '#')) wrong.push(`${file}: the search has no entry for ${address}`)
}
if (files.length < 40) wrong.push(`git lists only ${files.length} pages`)
if (wrong.length) {
  console.error(wrong.join('\n'))
  process.exit(1)
}
console.log(`bin/site has ${files.length} pages of docs, and its search finds all of them`)
