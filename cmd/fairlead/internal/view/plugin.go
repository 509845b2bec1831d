package view

import (
	"strings"

	"github.com/fairlead/fairlead/pkg/pluginprotocol/conformance"
)

// PushedPlugin is a plugin in an OCI registry.
type PushedPlugin struct {
	URL    string `json:"url"`           // oci://HOST/PATH/NAME
	Digest string `json:"digest"`        // of the artifact's manifest, sha256:…
	Tag    string `json:"tag,omitempty"` // "": none
}

// JSON returns the plugin itself.
func (p PushedPlugin) JSON() any { return p }

// Human writes the lines of app.yaml that name the plugin.
func (p PushedPlugin) Human(page *Page) {
	page.Line("    type: plugin\n    oci:\n      url: %s\n      digest: %s", p.URL, p.Digest)
}

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
