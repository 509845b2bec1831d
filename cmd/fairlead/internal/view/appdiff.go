package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/go-openapi/jsonpointer"

	"github.com/fairlead/fairlead/pkg/changeset"
)

// AppDiff is the differences of two versions of an app.
type AppDiff struct {
	App     string             `json:"app"`
	From    ComparedApp        `json:"from"`
	To      ComparedApp        `json:"to"`
	Changes []changeset.Change `json:"changes" doc:"The differences. An address is that in app.yaml: inputs.NAME, components.NAME, aws, description; the digest of a component's source is its field artifact"`
	Omitted int                `json:"omitted,omitempty" doc:"Number of differences that are left out, because there are too many"`
}

// ComparedApp is one side of a comparison: a version, or a folder.
type ComparedApp struct {
	Version string   `json:"version,omitempty" doc:"ID of the version; absent for a folder"`
	Names   []string `json:"names,omitempty" doc:"Names of the version"`
	Folder  string   `json:"folder,omitempty" doc:"The folder, as it was given"`
}

func (a ComparedApp) String() string {
	if a.Folder != "" {
		return "the folder " + a.Folder
	}
	return versionField(a.Version, a.Names)
}

// JSON returns the AppDiff.
func (d AppDiff) JSON() any { return d }

// Human writes a line for each part of the app that differs, and below it a line for each value that differs.
func (d AppDiff) Human(p *Page) {
	p.Line("App %s, from %s to %s:", d.App, d.From.String(), d.To.String())
	if len(d.Changes) == 0 {
		p.Line("  no differences")
		return
	}
	for _, c := range d.Changes {
		p.Line("  %s %s", Styled(symbol(p.Style, c)), c.Address)
		if c.Action != changeset.Update {
			continue
		}
		if c.Omitted {
			p.Line("        values too large to show")
		}
		for _, pointer := range c.Changed {
			name := changeset.Path(pointer)
			if name != "" {
				name += ": "
			}
			p.Line("        %s%s → %s", name, at(c.Before, pointer), at(c.After, pointer))
		}
	}
	if d.Omitted > 0 {
		p.Line("  … and %d more", d.Omitted)
	}
}

// at renders the value at the JSON pointer in tree. It renders "-" if there is none.
func at(tree any, pointer string) string {
	found := tree
	if pointer != "" {
		ptr, err := jsonpointer.New(pointer)
		if err != nil {
			return "-"
		}
		if found, _, err = ptr.Get(tree); err != nil {
			return "-"
		}
	}
	if text, ok := found.(string); ok && strings.HasPrefix(text, "sha256:") {
		return short(text)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(found); err != nil {
		return fmt.Sprint(found)
	}
	return clipped(value(bytes.TrimSpace(out.Bytes())), "--json prints all")
}
