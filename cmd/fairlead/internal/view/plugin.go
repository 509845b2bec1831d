package view

import (
	"strings"

	"github.com/fairlead/fairlead/pkg/pluginprotocol/conformance"
)

// PluginReport is the result of the conformance suite of plugins.
type PluginReport conformance.Report

// JSON returns the conformance.Report.
func (r PluginReport) JSON() any { return conformance.Report(r) }

// Human writes one line for each check, and the message and the log of a failed one.
func (r PluginReport) Human(p *Page) {
	if r.Name != "" {
		p.Line("%s: plugin %s %s", r.Program, r.Name, r.Version)
	}
	failed := 0
	for _, c := range r.Checks {
		mark, text := p.Style.Good("✓"), c.Name
		switch c.Result {
		case conformance.Failed:
			failed++
			mark = p.Style.Bad("✗")
		case conformance.Skipped:
			mark, text = "-", c.Name+" (skipped: "+c.Message+")"
		}
		p.Line("%s %s", Styled(mark), text)
		if c.Result == conformance.Failed {
			p.Line("    %s", strings.ReplaceAll(c.Message, "\n", "\n    "))
			if c.Log != "" {
				p.Line("    the end of its log:\n      %s", strings.ReplaceAll(c.Log, "\n", "\n      "))
			}
		}
	}
	if r.Passed {
		p.Line("The program keeps the protocol of plugins.")
		return
	}
	p.Line("%d of %d checks failed.", failed, len(r.Checks))
}
