package terraform_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/dirhash"

	"github.com/fairlead/fairlead/runner/internal/providers"
	"github.com/fairlead/fairlead/runner/plugin/plugintest"
	"github.com/fairlead/fairlead/runner/plugin/terraform"
	"github.com/fairlead/fairlead/test/tofu"
	"github.com/fairlead/fairlead/tools/shortrun"
)

// mirrored are jobs that share nothing but a mirror of providers: each has an empty disk.
type mirrored struct {
	t        *testing.T
	tool     string
	registry *tofu.Registry
	mirror   string // folder
	config   string
	jobs     int
}

// host returns the tool's default registry host.
func (m *mirrored) host() string {
	for host, dir := range map[string]string{"registry.opentofu.org": "tofu", "registry.terraform.io": "terraform"} {
		if filepath.Base(m.tool) == dir {
			return host
		}
	}
	m.t.Fatalf("%s is neither tofu nor terraform", m.tool)
	return ""
}

// plan plans the module timed with a lock file that has these hashes ("": no lock file), on an empty disk. It returns the log.
func (m *mirrored) plan(hashes ...string) string {
	m.t.Helper()
	module := map[string]string{"main.tf": timed["timed"]["main.tf"]}
	if len(hashes) > 0 {
		module[".terraform.lock.hcl"] = fmt.Sprintf("provider \"%s/hashicorp/time\" {\n  version = \"0.14.2\"\n  hashes  = [\"%s\"]\n}\n", m.host(), strings.Join(hashes, `", "`))
	}
	data, log := m.t.TempDir(), plugintest.NewLog()
	p := terraform.New(terraform.Config{Data: data, Tool: m.tool, CLIConfig: m.config, Mirror: providers.MirrorLocation{Folder: m.mirror}, Environ: []string{"PATH=" + os.Getenv("PATH")}})
	m.jobs++
	sp := spec(m.jobs, "timed")
	res, err := p.Run(m.t.Context(), sp, plugintest.Env(m.t, data, fmt.Sprintf("%s-%d", sp.Job, sp.Epoch), log, map[string]map[string]string{"timed": module}, sp))
	if err != nil || res.Plan == nil || res.Plan.Changes.Add != 1 {
		m.t.Fatalf("plan: %v, %+v\n%s", err, res.Plan, log.String())
	}
	return log.String()
}

// archive returns the path of the provider's archive in the mirror.
func (m *mirrored) archive(like string) string {
	return filepath.Join(m.mirror, m.host(), "hashicorp", "time", filepath.Base(like))
}

// Jobs on empty disks take a provider from the customer's mirror instead of downloading it. Jobs of all operations can write to
// the mirror, so an archive that is not the locked one is refused, and is downloaded again.
func TestEmptyDiskTakesLockedProviderFromMirror(t *testing.T) {
	shortrun.OneDayIn(t, 2, 0)
	packed := tofu.NewMirror(t, true)
	real, err := os.ReadFile(packed.Files[0])
	if err != nil {
		t.Fatal(err)
	}
	h1, err := dirhash.HashZip(packed.Files[0], dirhash.Hash1)
	if err != nil {
		t.Fatal(err)
	}
	ran := filepath.Join(t.TempDir(), "ran")
	script, planted := filepath.Join(t.TempDir(), "script"), filepath.Join(t.TempDir(), "planted.zip")
	if err := errors.Join(os.WriteFile(script, []byte("#!/bin/sh\necho ran >>'"+ran+"'\nexit 1\n"), 0o700), tofu.Archive(planted, "terraform-provider-time_v0.14.2", script)); err != nil {
		t.Fatal(err)
	}
	evil, err := os.ReadFile(planted)
	if err != nil {
		t.Fatal(err)
	}
	registry := tofu.NewRegistry(t, packed.Files[0])
	zh := registry.Hash
	for name, tool := range tofu.Tools(t) {
		t.Run(name, func(t *testing.T) {
			for row, tt := range map[string]struct {
				mirror    []byte // content of the archive in the mirror; nil: none
				hashes    []string
				downloads int
				stored    []byte // the archive in the mirror after the job
				log       string
			}{
				"an empty mirror gets the archive":             {nil, []string{zh}, 1, real, ""},
				"the archive's hash is locked":                 {real, []string{zh}, 0, real, ""},
				"the hash of the content is locked":            {real, []string{h1}, 0, real, ""},
				"hashes of other platforms are locked too":     {real, []string{"h1:AAAA", "zh:bbbb", h1}, 0, real, ""},
				"a planted program is refused and replaced":    {evil, []string{zh, h1}, 1, real, "the mirror's archive is refused"},
				"a damaged archive is refused and replaced":    {real[:len(real)/2], []string{h1}, 1, real, "the mirror's archive is refused"},
				"without a lock file nothing is trusted":       {evil, nil, 1, evil, ""},
				"without a lock file the mirror gets no entry": {nil, nil, 1, nil, ""},
			} {
				t.Run(row, func(t *testing.T) {
					m := &mirrored{t: t, tool: tool, registry: registry, mirror: t.TempDir(), config: registry.Config}
					at := m.archive(packed.Files[0])
					if tt.mirror != nil {
						if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, tt.mirror, 0o600)); err != nil {
							t.Fatal(err)
						}
					}
					before := registry.Downloads()
					log := m.plan(tt.hashes...)
					if got := registry.Downloads() - before; got != tt.downloads {
						t.Errorf("%d downloads, want %d\n%s", got, tt.downloads, log)
					}
					if got, _ := os.ReadFile(at); !bytes.Equal(got, tt.stored) {
						t.Errorf("the mirror has an archive of %d bytes, want %d\n%s", len(got), len(tt.stored), log)
					}
					if tt.log != "" != strings.Contains(log, "[fairlead: ") || !strings.Contains(log, tt.log) {
						t.Errorf("the log should have %q:\n%s", tt.log, log)
					}
				})
			}
			if _, err := os.Stat(ran); err == nil {
				t.Error("a planted program ran")
			}
		})
	}
}

// With the archive in the mirror, a job needs no registry. Without a registry and without the archive, a job fails as it would
// without a mirror. If the operator's configuration chooses the place of providers, the mirror is not used.
func TestMirrorReplacesTheRegistry(t *testing.T) {
	packed := tofu.NewMirror(t, true)
	registry := tofu.NewRegistry(t, packed.Files[0])
	dead := filepath.Join(t.TempDir(), "dead.tfrc")
	if err := os.WriteFile(dead, []byte(`
host "registry.opentofu.org" { services = { "providers.v1" = "http://127.0.0.1:1/" } }
host "registry.terraform.io" { services = { "providers.v1" = "http://127.0.0.1:1/" } }
`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tool := range tofu.Tools(t) {
		t.Run(name, func(t *testing.T) {
			m := &mirrored{t: t, tool: tool, registry: registry, mirror: t.TempDir(), config: registry.Config}
			m.plan(registry.Hash)
			m.config = dead
			m.plan(registry.Hash)

			chosen := &mirrored{t: t, tool: tool, registry: registry, mirror: t.TempDir(), config: packed.Config}
			chosen.plan(registry.Hash)
			if _, err := os.Stat(chosen.archive(packed.Files[0])); err == nil {
				t.Error("the mirror has an archive, although the operator's configuration chooses where providers come from")
			}
		})
	}
}
