import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { withMermaid } from 'vitepress-plugin-mermaid'

const root = join(import.meta.dirname, '../../..')

// Files of the repository that are not pages of the site: examples, Go code, API descriptions.
const source = 'https://github.com/fairlead/fairlead/tree/main/'

const pages = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', '*.md'], { cwd: root, encoding: 'utf8' })
  .split('\n')
  .filter((file) => file && !file.startsWith('.github/') && !file.includes('testdata/') && existsSync(join(root, file)))

// address returns the path of a page on the site. A README is the page of its folder.
const address = (file: string) => '/' + file.replace(/(^|\/)README\.md$/, '$1').replace(/\.md$/, '')

// title returns the first heading of a page.
const title = (file: string) =>
  (/^# (.*)$/m.exec(readFileSync(join(root, file), 'utf8'))?.[1] ?? file).replaceAll('`', '')

// section returns the sidebar's entry of one folder: its README first, then its pages by name.
const section = (text: string, folder: string) => ({
  text,
  collapsed: true,
  items: pages
    .filter((file) => dirname(file) === folder)
    .sort((a, b) => Number(b.endsWith('README.md')) - Number(a.endsWith('README.md')) || a.localeCompare(b))
    .map((file) => ({ text: title(file), link: address(file) })),
})

// target converts a relative link on a page to an address on the site. The files contain links that work on GitHub.
function target(page: string, link: string): string {
  if (/^([a-z]+:|#|\/)/i.test(link)) return link
  const [path, fragment] = link.split('#', 2)
  let file = normalize(join(dirname(page), path)).replace(/\/$/, '')
  if (existsSync(join(root, file)) && statSync(join(root, file)).isDirectory() && pages.includes(join(file, 'README.md'))) {
    file = join(file, 'README.md')
  }
  if (!pages.includes(file)) {
    // A file that does not exist keeps its link, so that VitePress reports it as dead.
    return existsSync(join(root, file)) ? source + file : link
  }
  return address(file) + (fragment ? '#' + fragment : '')
}

export default withMermaid({
  title: 'Fairlead',
  description: "Ship a product into customers' cloud accounts, without a key to them",
  srcDir: '../..',
  // Only tracked and new files are pages. This excludes the files that builds create.
  srcExclude: ['bin/**', 'tools/**', '.github/**', '**/testdata/**', '**/node_modules/**'],
  outDir: '../../bin/site',
  cacheDir: './cache',
  cleanUrls: true,
  rewrites: (file) => file.replace(/(^|\/)README\.md$/, '$1index.md'),
  markdown: {
    // The rule runs before VitePress' own rule for links.
    config: (md) => {
      md.core.ruler.push('repository-links', (state) => {
        for (const block of state.tokens)
          for (const token of block.children ?? [])
            if (token.type === 'link_open') token.attrSet('href', target(state.env.relativePath, token.attrGet('href') ?? ''))
      })
    },
    // Some code fences have the name of a table that tests read. The name is no language, so it needs an empty grammar.
    languages: [{ name: 'placement', scopeName: 'source.placement', patterns: [], repository: {} } as never],
  },
  // The pages are outside the folder with the packages, so Vite needs the paths of these packages.
  vite: {
    resolve: {
      alias: [
        { find: /^vue$/, replacement: join(import.meta.dirname, '../node_modules/vue/dist/vue.runtime.esm-bundler.js') },
        { find: /^vue\/server-renderer$/, replacement: join(import.meta.dirname, '../node_modules/vue/server-renderer/index.mjs') },
      ],
    },
    build: { chunkSizeWarningLimit: 2000 },
  },
  // While a page loads, the plugin renders each diagram twice at the same time. The first rendering fails. Without
  // this style, its error would be visible until the second rendering ends.
  head: [['style', {}, '.mermaid svg[aria-roledescription="error"] { visibility: hidden }']],
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    nav: [
      { text: 'Tutorial', link: '/docs/tutorial/1-first-deployment' },
      { text: 'Vendors', link: '/docs/vendor/' },
      { text: 'Customers', link: '/docs/customer/' },
      { text: 'Reference', link: '/docs/reference/cli' },
    ],
    sidebar: [
      { text: 'Fairlead', link: '/' },
      section('Tutorial', 'docs/tutorial'),
      section('For vendors', 'docs/vendor'),
      section('For customers', 'docs/customer'),
      section('Operations', 'docs/operations'),
      section('Reference', 'docs/reference'),
      { text: 'Fairlead and others', link: '/docs/comparison' },
      {
        text: 'For contributors',
        collapsed: true,
        items: [
          ...['CONTRIBUTING.md', 'SECURITY.md', 'CHANGELOG.md'].map((file) => ({ text: title(file), link: address(file) })),
          ...section('', 'docs/contributing').items,
          section('Decisions', 'docs/contributing/decisions'),
        ],
      },
    ],
  },
})
