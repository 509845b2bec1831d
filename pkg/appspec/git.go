package appspec

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"reflect"
	"strings"

	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

// Git is a git repository that has a component's source. The component's Source is a folder of the repository.
type Git struct {
	URL string `json:"url" must:"there" alias:"repo repository remote address" doc:"The repository: an https URL without a user name."`
	// Ref is a commit, tag or branch. Only a commit always names the same files.
	Ref string `json:"ref" must:"there" alias:"commit tag branch revision version" doc:"A commit as 40 hexadecimal digits, or the name of a tag or branch. The build of a tag or branch looks up its commit each time."`
	// Credentials names a secret of the build runner. Its value is the password for the repository.
	Credentials string `json:"credentials,omitempty" alias:"token password" doc:"The name of a secret of the build runner with the repository's password or token. If absent: the repository is public."`
}

var (
	commitPattern = pattern.New(`^[0-9a-f]{40}$`)
	refPattern    = pattern.New(`^[A-Za-z0-9][A-Za-z0-9._/+-]{0,199}$`)
)

// Commit reports whether the ref is a commit, which always names the same files.
func (g Git) Commit() bool { return commitPattern.MatchString(g.Ref) }

// Built reports whether a build makes the component's artifact. The artifact of another component is packed from the
// app's folder.
func (c Component) Built() bool { return !c.InFolder() || c.Build != nil }

// InFolder reports whether the component's source is in the app's folder.
func (c Component) InFolder() bool { return len(c.origins()) == 0 }

// Origin is the place from which a build fetches a source.
type Origin struct {
	Kind        string // OriginGit, OriginChart, OriginModule, OriginOCI or OriginFolder
	URL         string // of the git repository, the repository of charts or the OCI artifact; address of the module in its registry
	Chart       string // name of the chart in a repository of charts
	Ref         string // commit, tag or branch; version of the chart or the module; digest of the OCI artifact; "" of OriginFolder
	Credentials string // name of a secret of the build runner; "": none
}

// The kinds of an Origin. Each is also the name of its field in a component.
const (
	OriginGit    = "git"
	OriginChart  = "chart"
	OriginModule = "module"
	OriginOCI    = "oci"
	OriginFolder = "folder"
)

// From returns the place from which a build fetches the component's source; the zero Origin if it is not built.
func (c Component) From() Origin {
	if all := c.origins(); len(all) > 0 {
		return all[0]
	}
	if c.Build != nil {
		return Origin{Kind: OriginFolder}
	}
	return Origin{}
}

// origins returns the places outside of the app's folder that the component names. A valid component names at most one.
func (c Component) origins() (all []Origin) {
	if g := c.Git; g != nil {
		all = append(all, Origin{Kind: OriginGit, URL: g.URL, Ref: g.Ref, Credentials: g.Credentials})
	}
	if h := c.Chart; h != nil {
		all = append(all, Origin{Kind: OriginChart, URL: h.URL, Chart: h.Name, Ref: h.Version, Credentials: h.Credentials})
	}
	if m := c.Module; m != nil {
		all = append(all, Origin{Kind: OriginModule, URL: m.Address, Ref: m.Version, Credentials: m.Credentials})
	}
	if o := c.OCI; o != nil {
		all = append(all, Origin{Kind: OriginOCI, URL: o.URL, Ref: o.Digest, Credentials: o.Credentials})
	}
	return all
}

// SameBuild reports whether a build of o has the result of a build of c: a commit, a version of a chart or module, and a
// digest name the same files at each build. If the source is in the app's folder, the packed folders must be the same too.
func (c Component) SameBuild(o Component) bool {
	a, b := c.From(), o.From()
	a.Credentials, b.Credentials = "", ""
	fixed := c.Git == nil || c.Git.Commit()
	sameFolder := c.Source == o.Source || a.Kind == OriginFolder // the packed folder has no name
	return c.Built() && fixed && a == b && sameFolder && c.Type == o.Type && reflect.DeepEqual(c.Build, o.Build)
}

// checkGit reports what is wrong with the repository of a component.
func checkGit(report reporter, where string, c Component) {
	g := c.Git
	if g == nil {
		return
	}
	if message, hint := checkURL(g.URL, gitField); message != "" {
		report(where+".git.url", "invalid-git-url", fmt.Sprintf("the repository of component %s %s", yamlnode.Quote(c.Name), message), hint)
	}
	if !refPattern.MatchString(g.Ref) || strings.Contains(g.Ref, "..") || strings.HasSuffix(g.Ref, ".lock") || strings.HasSuffix(g.Ref, "/") {
		report(where+".git.ref", "invalid-git-ref", fmt.Sprintf("%s is not a commit, tag or branch", yamlnode.Quote(g.Ref)),
			"Write a commit as 40 hexadecimal digits, or the name of a tag or branch.")
	}
	checkCredentials(report, where+".git.credentials", g.Credentials)
}

// checkCredentials reports a name that no secret of a build runner has.
func checkCredentials(report reporter, where, name string) {
	if name != "" && (!secretName.MatchString(name) || runnerspec.SecretVariable(name) != "") {
		report(where, "invalid-name", fmt.Sprintf("%s is not the name of a secret", yamlnode.Quote(name)), "Use upper-case letters, digits and underscores, such as GITHUB_TOKEN.")
	}
}

// urlField is a field with the URL that a build fetches from. Its texts are for hints.
type urlField struct {
	name    string // the field around the URL
	example string // a valid URL
	rest    string // where to write what a query or fragment of the URL named
}

var (
	gitField   = urlField{"git", "https://github.com/acme/modules.git", "Write the ref under git.ref, and the folder under source."}
	chartField = urlField{"chart", "https://charts.example.com", "Write the version under chart.version."}
)

// checkURL returns "" if the URL is one that a build may fetch from. A URL with a password would show the password to
// everybody who can read the app. Other protocols than https have no check of the server, or start programs.
func checkURL(text string, field urlField) (message, hint string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "" || strings.ContainsAny(text, " \t\n\\\"'"):
		return "is not a URL", "Write an https URL, such as " + field.example + "."
	case u.Scheme != "https" && !(u.Scheme == "http" && isLoopback(u.Hostname())):
		return "must have an https URL", "Write an https URL, such as " + field.example + ". A private repository is read with a token, under " + field.name + ".credentials."
	case u.User != nil:
		return "has a user name or password in its URL", "Remove it, and give the password to the build runner as a secret, under " + field.name + ".credentials."
	case u.RawQuery != "" || u.Fragment != "":
		return "has a query or fragment in its URL", field.rest
	}
	return "", ""
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// CheckSource checks the files of a component that is built, as Load checks the files of the app's folder: fsys is what
// the build fetched. It returns the folders to pack, or all problems.
func CheckSource(fsys fs.FS, c Component) (Source, Problems) {
	m, message, hint, problems := checkFolder(fsys, c.Source, c.Type)
	if message == "" {
		message, hint = lacksDockerfile(fsys, c.Source, c.Build)
	}
	report := func(_, code, message, hint string) {
		problems = append(problems, Problem{File: FileName, Line: 1, Column: 1, Code: code, Message: message, Hint: hint})
	}
	if message != "" {
		report("", "missing-source", fmt.Sprintf("the source %s of component %s %s", yamlnode.Quote("./"+c.Source), yamlnode.Quote(c.Name), message), strings.ReplaceAll(hint, "the app's folder", "the repository"))
	}
	if m != nil {
		checkModules(&App{Components: []Component{c}}, map[string]module{c.Name: *m}, report)
	}
	if len(problems) > 0 {
		return Source{}, yamlnode.Finish(problems)
	}
	s, err := SourceOf(fsys, c)
	if e, ok := errors.AsType[*fairlead.Error](err); ok {
		report("", string(e.Code), e.Message, e.Hint)
	} else if err != nil {
		report("", "missing-source", reason(err), "")
	}
	return s, problems
}

// CheckPlugin checks a folder with a plugin at its top as CheckSource does, before the folder is published.
func CheckPlugin(fsys fs.FS) Problems {
	t := component.WithOwnProgram()
	_, problems := CheckSource(fsys, Component{Name: t.Name, Type: t.Name, Source: "."})
	return problems
}

// checkBuiltSource reports what is wrong with the source of a component that is built.
func checkBuiltSource(report reporter, where string, c Component) {
	checkSource(func(where, code, message, _ string) {
		report(where, code, strings.ReplaceAll(message, "the app's folder", "the repository"), "Name a folder of the repository, the module or the artifact, such as ./network.")
	}, where, c.Source)
	if all := c.origins(); len(all) > 1 {
		report(where+"."+all[1].Kind, "two-origins", fmt.Sprintf("the component %s has its source in several places: %s and %s", yamlnode.Quote(c.Name), all[0].Kind, all[1].Kind), "Remove one of the two.")
	}
	checkGit(report, where, c)
	checkChart(report, where, c)
	checkRegistryModule(report, where, c)
	checkOCI(report, where, c)
}
