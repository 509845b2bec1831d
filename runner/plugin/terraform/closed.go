package terraform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	bundles "github.com/fairlead/fairlead/pkg/bundle"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin/internal/toolprocess"
	"github.com/fairlead/fairlead/runner/plugin/terraform/mirror"
)

// bundled is the mirror in the registry of an install of a closed app. The program of the images reads it, because a step has no client
// of registries. What it does not have comes from the customer's other mirror.
type bundled struct {
	job     *job
	program string
	next    mirror.Mirror // nil: there is none
}

// openMirror returns the mirror of the job's providers.
func (j *job) openMirror() (mirror.Mirror, error) {
	var next mirror.Mirror
	if j.usesMirror() {
		var err error
		if next, err = j.p.openMirror(j.run.env); err != nil {
			return nil, err
		}
	}
	if j.spec.Registry == nil {
		return next, nil
	}
	t, _ := component.Of(component.Bundle)
	return &bundled{job: j, program: filepath.Join(j.p.cfg.Programs, t.Program), next: next}, nil
}

// openMirror returns the customer's own mirror.
func (p *Plugin) openMirror(env map[string]string) (mirror.Mirror, error) {
	at := p.cfg.Mirror
	switch {
	case at.Bucket == "":
		return mirror.Folder(at.Folder), nil
	case p.cfg.Buckets == nil:
		return nil, noBuckets("the customer's mirror of providers is in bucket " + at.Bucket)
	}
	return p.cfg.Buckets.Mirror(at, env)
}

// Get writes an archive to w.
func (b *bundled) Get(ctx context.Context, name string, w io.Writer) error {
	err := b.fetch(ctx, name, w)
	if errors.Is(err, fs.ErrNotExist) && b.next != nil {
		return b.next.Get(ctx, name, w)
	}
	return err
}

// Put stores an archive in the customer's other mirror. The vendor fills that in the registry.
func (b *bundled) Put(ctx context.Context, name string, from *os.File) error {
	if b.next == nil {
		return nil
	}
	return b.next.Put(ctx, name, from)
}

// stopGrace is how long the program may take to end after an interrupt.
const stopGrace = 5 * time.Second

// fetch gets an archive from the registry. The error is fs.ErrNotExist if the registry does not have it.
func (b *bundled) fetch(ctx context.Context, name string, w io.Writer) error {
	at, env := b.job.spec.Registry, b.job.env
	req := bundles.ArchiveRequest{Kind: at.Kind, URL: at.URL, Repository: at.Repository, Login: at.Variable, CA: at.CA, Region: at.Region}
	var ok bool
	if req.Address, req.Version, req.Platform, ok = partsOf(name); !ok {
		return fs.ErrNotExist
	}
	line, err := json.Marshal(req)
	if err != nil {
		return err
	}
	in, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = out.Write(line) // it fits into the pipe
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	var log bytes.Buffer
	end := toolprocess.Process{Name: "the program " + b.program, Command: []string{b.program, bundles.Archived}, Dir: env.Workspace, Environ: b.job.run.env, Workspace: env.Workspace,
		Readable: []string{b.program}, Stdin: in, Stdout: w, Stderr: &log, Grace: stopGrace, Confine: env.Confine}.Run(ctx)
	switch {
	case end.Code != nil && *end.Code == bundles.ExitAbsent:
		return fs.ErrNotExist
	case end.Err != nil:
		return fmt.Errorf("the registry of the install: %w: %s", end.Err, fairlead.Clip(strings.TrimSpace(log.String()), 1000))
	}
	return nil
}

// partsOf splits the name of an archive in a mirror.
func partsOf(name string) (address, version, platform string, ok bool) {
	address = path.Dir(name)
	rest, begins := strings.CutPrefix(path.Base(name), "terraform-provider-"+path.Base(address)+"_")
	rest, ends := strings.CutSuffix(rest, ".zip")
	parts := strings.Split(rest, "_")
	if !begins || !ends || len(parts) != 3 {
		return "", "", "", false
	}
	return address, parts[0], parts[1] + "/" + parts[2], true
}
