package view

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/appspec"
)

// Apps is a listing of apps.
type Apps []wire.App

// JSON returns an array of wire.App.
func (a Apps) JSON() any { return array(a) }

// Human writes a table.
func (a Apps) Human(p *Page) {
	table(p, []string{"NAME", "VERSION", "COMPONENTS", "PUBLISHED", "DESCRIPTION"}, a, func(app wire.App) []string {
		names := make([]string, len(app.Version.Components))
		for j, c := range app.Version.Components {
			names[j] = c.Name
		}
		return []string{app.Name, versionCell(app.Version.ID, app.Version.Names), strings.Join(names, ", "), p.Ago(app.Version.CreatedAt), app.Description}
	})
}

// Versions is a listing of an app's versions.
type Versions struct {
	versions []wire.AppVersion
	installs map[string][]string // names by version
}

// NewVersions returns the listing of the versions. Each has the names of the
// installs with a component of that version.
func NewVersions(versions []wire.AppVersion, installs []wire.Install) Versions {
	by := map[string][]string{}
	for _, in := range installs {
		for _, c := range in.Components {
			if c.State != "absent" && c.Version != "" && !slices.Contains(by[c.Version], in.Name) {
				by[c.Version] = append(by[c.Version], in.Name)
			}
		}
	}
	return Versions{versions, by}
}

// ListedVersion is a version in the list of an app's versions.
type ListedVersion struct {
	wire.AppVersion
	Installs []string `json:"installs" doc:"Names of the installs with components of this version"`
}

// JSON returns a list of ListedVersion.
func (v Versions) JSON() any {
	out := make([]ListedVersion, len(v.versions))
	for i, one := range v.versions {
		out[i] = ListedVersion{one, array(v.installs[one.ID])}
	}
	return out
}

// Human writes a table.
func (v Versions) Human(p *Page) {
	table(p, []string{"VERSION", "NAMES", "PUBLISHED", "INSTALLS"}, v.versions, func(one wire.AppVersion) []string {
		return []string{short(one.ID), orDash(strings.Join(one.Names, ", ")), Time(one.CreatedAt), orDash(strings.Join(v.installs[one.ID], ", "))}
	})
}

// App is one app.
type App wire.App

// JSON returns the wire.App.
func (a App) JSON() any { return wire.App(a) }

// Human writes the app with the inputs and components of its newest version.
func (a App) Human(p *Page) {
	p.Fields([2]string{"App", a.Name}, [2]string{"About", a.Description},
		[2]string{"Version", versionField(a.Version.ID, a.Version.Names)}, [2]string{"Published", Time(a.Version.CreatedAt)},
		[2]string{"Sandbox", sandboxOfApp(a.Version.Sandbox)}, [2]string{"Runner kinds", strings.Join(a.Version.RunnerKinds, ", ")})
	if len(a.Version.Inputs) > 0 {
		p.Gap()
		a.inputs(p)
	}
	p.Gap()
	table(p, []string{"COMPONENT", "TYPE", "NEEDS", "SWITCH", "SOURCE"}, a.Version.Components, func(c wire.AppComponent) []string {
		return []string{c.Name, c.Type, orDash(strings.Join(c.DependsOn, ", ")), orDash(c.Switch), sourceOf(c)}
	})
}

// inputs writes the inputs, in the order of their groups. It shows groups and givers if the app declares some.
func (a App) inputs(p *Page) {
	place, title := map[string]int{}, map[string]string{}
	for i, g := range a.Version.InputGroups {
		place[g.Name], title[g.Name] = i+1, cmp.Or(g.Title, g.Name)
	}
	inputs := slices.Clone(a.Version.Inputs)
	slices.SortStableFunc(inputs, func(a, b wire.AppInput) int { return cmp.Compare(place[a.Group], place[b.Group]) })
	customer := slices.ContainsFunc(inputs, func(in wire.AppInput) bool { return in.From != "" })
	header := []string{"INPUT", "TYPE", "DEFAULT"}
	if len(title) > 0 {
		header = append(header, "GROUP")
	}
	if customer {
		header = append(header, "FROM")
	}
	table(p, append(header, "DESCRIPTION"), inputs, func(in wire.AppInput) []string {
		row := []string{in.Name, in.Type, inputDefault(in)}
		if len(title) > 0 {
			row = append(row, orDash(title[in.Group]))
		}
		if customer {
			row = append(row, cmp.Or(in.From, "vendor"))
		}
		return append(row, in.Description)
	})
}

// sourceOf returns the digest of the component's artifact, and the commit, chart or module from which it was built.
func sourceOf(c wire.AppComponent) string {
	if c.Built == nil {
		return short(c.Artifact)
	}
	b := c.Built
	switch b.Kind {
	case "chart":
		return fmt.Sprintf("%s, %s %s of %s", short(c.Artifact), cmp.Or(b.Chart, "chart"), b.Ref, b.URL)
	case "module":
		return fmt.Sprintf("%s, module %s %s", short(c.Artifact), b.URL, b.Ref)
	case appspec.OriginFolder:
		return fmt.Sprintf("%s, built from the app's folder %s", short(c.Artifact), short(b.Revision))
	}
	return fmt.Sprintf("%s, commit %.12s of %s", short(c.Artifact), b.Revision, b.URL)
}

func inputDefault(in wire.AppInput) string {
	note := ""
	if in.Sensitive {
		note = " (sensitive)"
	}
	switch {
	case in.Required:
		return "required" + note
	case in.Generated:
		return "generated" + note
	case len(in.Default) > 0 && in.Sensitive:
		return "(sensitive)"
	case len(in.Default) > 0:
		return value(in.Default)
	}
	return "none" + note
}

// Validation holds the problems of an app's folder, if any.
type Validation struct {
	Dir      string
	App      string // name; "" if it could not be read
	Problems []appspec.Problem
	Warnings []string // of a valid app
}

// JSON returns {"valid", "app", "problems", "warnings"}. Paths are relative to the folder.
func (v Validation) JSON() any {
	return struct {
		Valid    bool              `json:"valid"`
		App      string            `json:"app,omitempty"`
		Problems []appspec.Problem `json:"problems"`
		Warnings []string          `json:"warnings,omitempty"`
	}{len(v.Problems) == 0, v.App, array(v.Problems), v.Warnings}
}

// Human writes each problem on one line, in the format of compilers, and its hint
// below.
func (v Validation) Human(p *Page) {
	for _, pr := range v.Problems {
		p.Line("%s", Styled(v.line(p.Style, pr)))
		if pr.Hint != "" {
			p.Line("    %s", strings.ReplaceAll(pr.Hint, "\n", "\n    "))
		}
	}
	if len(v.Problems) == 0 {
		p.Line("%s %s is valid: app %s", Styled(p.Style.Good("✓")), v.Dir, v.App)
	}
	for _, w := range v.Warnings {
		p.Line("%s %s", Styled(p.Style.Warn("!")), w)
	}
}

func (v Validation) line(s Style, pr appspec.Problem) string {
	place := fmt.Sprintf("%s:%d:%d:", filepath.Join(v.Dir, filepath.FromSlash(pr.File)), pr.Line, pr.Column)
	return s.Bold(Cell(place)) + " " + Cell(pr.Message)
}

// Published is the result of `app apply`.
type Published struct {
	Version wire.AppVersion
	Before  *wire.AppVersion // the newest version before; nil if there was none
}

// JSON returns the wire.AppVersion.
func (v Published) JSON() any { return v.Version }

// Human writes the version and the changes of its components.
func (v Published) Human(p *Page) {
	if !v.Version.New {
		p.Line("App %s is unchanged: version %s", v.Version.App, versionField(v.Version.ID, v.Version.Names))
		return
	}
	p.Line("%s App %s: new version %s", Styled(p.Style.Good("✓")), v.Version.App, versionField(v.Version.ID, v.Version.Names))
	width := 0
	for _, c := range v.Version.Components {
		width = max(width, len(c.Name))
	}
	for _, c := range v.changes() {
		p.Line("  %-*s  %s", width, c[0], c[1])
	}
}

// changes compares the components with those of the previous version.
func (v Published) changes() [][2]string {
	before := map[string]wire.AppComponent{}
	if v.Before != nil {
		for _, c := range v.Before.Components {
			before[c.Name] = c
		}
	}
	var out [][2]string
	for _, c := range v.Version.Components {
		old, had := before[c.Name]
		delete(before, c.Name)
		switch {
		case !had:
			out = append(out, [2]string{c.Name, "new"})
		case old.Artifact != c.Artifact:
			out = append(out, [2]string{c.Name, "source changed"})
		case old.Type != c.Type || !slices.Equal(old.DependsOn, c.DependsOn):
			out = append(out, [2]string{c.Name, "configuration changed"})
		default:
			out = append(out, [2]string{c.Name, "source unchanged"})
		}
	}
	for name := range before {
		out = append(out, [2]string{name, "removed"})
	}
	slices.SortFunc(out, func(a, b [2]string) int { return cmp.Compare(a[0], b[0]) })
	return out
}

// AppDeleted reports that an app was deleted.
type AppDeleted struct {
	App string `json:"app"`
}

// JSON returns {"app"}.
func (d AppDeleted) JSON() any { return d }

// Human writes one line.
func (d AppDeleted) Human(p *Page) {
	p.Line("%s Deleted app %s with its versions", Styled(p.Style.Good("✓")), d.App)
}
