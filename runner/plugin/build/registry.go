package build

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/hashicorp/go-version"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/tfmodule"
	"github.com/fairlead/fairlead/runner/plugin"
)

// maxVersions limits the answers of a module registry, in bytes.
const maxVersions = 8 << 20

// located is a version of a module in a registry, and where it is.
type located struct {
	version string
	at      tfmodule.Source // in git or an archive
}

// locate returns the newest version of a module in its registry that the constraint permits; "" permits all but
// pre-releases. It uses the protocol of module registries.
func (f fetcher) locate(ctx context.Context, s tfmodule.Source, constraint string) (located, error) {
	service, err := f.service(ctx, s.Host)
	if err != nil {
		return located{}, err
	}
	base := service.JoinPath(s.Address)
	raw, err := f.get(ctx, base.JoinPath("versions"), maxVersions)
	if err != nil {
		return located{}, unavailable(err, "the registry %s does not list the versions of module %s: %v", s.Host, s.Address, err)
	}
	var list struct {
		Modules []struct {
			Versions []struct {
				Version string `json:"version"`
			} `json:"versions"`
		} `json:"modules"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return located{}, unavailable(err, "the registry %s lists the versions of module %s in a form that is not of the protocol of module registries", s.Host, s.Address)
	}
	var versions []string
	for _, m := range list.Modules {
		for _, v := range m.Versions {
			versions = append(versions, v.Version)
		}
	}
	v, err := newest(versions, constraint)
	if err != nil {
		return located{}, plugin.Errorf(fairlead.ReasonSourceInvalid, "%.100q is not a constraint on the version of module %s", constraint, s.Address)
	}
	if v == "" {
		return located{}, unavailable(nil, "the registry %s has no version of module %s that is %s", s.Host, s.Address, orAny(constraint))
	}
	at, err := f.download(ctx, base.JoinPath(v, "download"))
	if err != nil {
		return located{}, unavailable(err, "the registry %s does not tell where version %s of module %s is: %v", s.Host, v, s.Address, err)
	}
	return located{v, at}, nil
}

func orAny(constraint string) string {
	if constraint == "" {
		return "no pre-release"
	}
	return constraint
}

// service returns the base URL of the module registry of a host, as the host's discovery document names it.
func (f fetcher) service(ctx context.Context, host string) (*url.URL, error) {
	at := &url.URL{Scheme: "https", Host: host, Path: "/.well-known/terraform.json"}
	if tfmodule.Loopback(at.Hostname()) {
		at.Scheme = "http"
	}
	a, err := f.ask(ctx, at, maxVersions)
	if err != nil {
		return nil, unavailable(err, "%s is not found as a module registry: %s: %v", host, at, err)
	}
	var services struct {
		Modules string `json:"modules.v1"`
	}
	if err := json.Unmarshal(a.body, &services); err != nil || services.Modules == "" {
		return nil, unavailable(err, "%s is no module registry: %s does not name modules.v1", host, at)
	}
	base, err := a.from.Parse(services.Modules)
	if err != nil || !tfmodule.SafeURL(base) {
		return nil, unavailable(err, "the module registry of %s has no https URL", host)
	}
	own, named := f.logins[host]
	if _, other := f.logins[base.Host]; named && own.bearer && !other && a.from.Host == host {
		f.logins[base.Host] = own // the host itself names the server that gets its token
	}
	return base, nil
}

// download asks where a version of a module is.
func (f fetcher) download(ctx context.Context, at *url.URL) (tfmodule.Source, error) {
	a, err := f.ask(ctx, at, maxVersions)
	if err != nil {
		return tfmodule.Source{}, err
	}
	where := a.header.Get("X-Terraform-Get")
	if body := bytes.TrimSpace(a.body); where == "" && len(body) > 0 {
		var answer struct {
			Location string `json:"location"`
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return tfmodule.Source{}, errors.New("its answer has no header X-Terraform-Get and is not JSON")
		}
		where = answer.Location
	}
	if where == "" {
		return tfmodule.Source{}, errors.New("its answer is empty")
	}
	if strings.HasPrefix(where, "/") || strings.HasPrefix(where, "./") || strings.HasPrefix(where, "../") {
		relative, err := a.from.Parse(where)
		if err != nil {
			return tfmodule.Source{}, errors.New("its answer is not a URL")
		}
		where = relative.String()
	}
	s, err := tfmodule.ParseSource(where)
	if err == nil && s.Kind != tfmodule.FromGit && s.Kind != tfmodule.FromArchive {
		err = errors.New("it is neither a git repository nor an archive")
	}
	if err != nil {
		shown, _, _ := strings.Cut(where, "?") // a query may be a signature
		return tfmodule.Source{}, fmt.Errorf("a build cannot fetch its answer %.200q: %w", shown, err)
	}
	return s, nil
}

// newest returns the newest version that the constraint permits; "": none. A pre-release counts only if the constraint is
// this version.
func newest(versions []string, constraint string) (string, error) {
	permits := func(*version.Version) bool { return true }
	if constraint != "" {
		c, err := version.NewConstraint(constraint)
		if err != nil {
			return "", err
		}
		permits = func(v *version.Version) bool { return c.Check(v) }
	}
	exact, _ := version.NewVersion(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(constraint), "=")))
	var all []*version.Version
	for _, text := range versions {
		v, err := version.NewVersion(text)
		if err != nil || !permits(v) || v.Prerelease() != "" && (exact == nil || !exact.Equal(v)) {
			continue
		}
		all = append(all, v)
	}
	if len(all) == 0 {
		return "", nil
	}
	return slices.MaxFunc(all, (*version.Version).Compare).String(), nil
}
