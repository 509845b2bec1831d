// Package pattern has regular expressions that are compiled at their first use. Each job is a process of its own, and each
// command of the CLI too: compiling all patterns at the start takes longer than most of them do, and few are used.
package pattern

import (
	"os"
	"regexp"
	"strings"
	"sync"
)

// Pattern is a regular expression that is compiled at its first use. It is safe for concurrent use.
// Its methods are those of [regexp.Regexp].
type Pattern struct {
	expression string
	compiled   func() *regexp.Regexp
}

// New returns the pattern for a constant expression. The first use panics if the expression is invalid. In the program of a
// test New itself does, so that each test of a package finds an invalid one.
func New(expression string) *Pattern {
	p := &Pattern{expression, sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })}
	if len(os.Args) > 0 && strings.HasSuffix(strings.TrimSuffix(os.Args[0], ".exe"), ".test") {
		p.compiled()
	}
	return p
}

// String returns the expression.
func (p *Pattern) String() string { return p.expression }

// Regexp returns the compiled expression, for methods that Pattern does not have.
func (p *Pattern) Regexp() *regexp.Regexp { return p.compiled() }

// MatchString is [regexp.Regexp.MatchString].
func (p *Pattern) MatchString(s string) bool { return p.compiled().MatchString(s) }

// FindStringSubmatch is [regexp.Regexp.FindStringSubmatch].
func (p *Pattern) FindStringSubmatch(s string) []string { return p.compiled().FindStringSubmatch(s) }

// FindAllString is [regexp.Regexp.FindAllString].
func (p *Pattern) FindAllString(s string, n int) []string { return p.compiled().FindAllString(s, n) }

// FindAllStringSubmatch is [regexp.Regexp.FindAllStringSubmatch].
func (p *Pattern) FindAllStringSubmatch(s string, n int) [][]string {
	return p.compiled().FindAllStringSubmatch(s, n)
}

// ReplaceAllString is [regexp.Regexp.ReplaceAllString].
func (p *Pattern) ReplaceAllString(s, by string) string { return p.compiled().ReplaceAllString(s, by) }

// ReplaceAllStringFunc is [regexp.Regexp.ReplaceAllStringFunc].
func (p *Pattern) ReplaceAllStringFunc(s string, by func(string) string) string {
	return p.compiled().ReplaceAllStringFunc(s, by)
}
