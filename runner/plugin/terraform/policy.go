package terraform

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/policy"
	"github.com/fairlead/fairlead/pkg/tfmodule"
)

// maxModuleFile bounds a file of a module that a policy judges, in bytes.
const maxModuleFile = 4 << 20

// judgeModule asks the customer's policy about what the tool is about to read: the module, the modules that it calls as `init`
// installed them, and the providers of the lock file.
func (j *job) judgeModule() error {
	if j.env.Policy == nil {
		return nil
	}
	var s tfmodule.Survey
	folders := map[string]bool{j.src: true}
	for _, m := range j.installedModules() {
		folders[filepath.Join(j.src, filepath.FromSlash(m.Dir))] = true
	}
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		if err := survey(&s, j.src, folder); err != nil {
			return fmt.Errorf("read the module for the policy: %w", err)
		}
	}
	lock, err := os.ReadFile(filepath.Join(j.src, dependencyLock))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the module for the policy: %w", err)
	}
	return j.env.Policy.Module(judged(s, lock))
}

// survey reads the files of one folder.
func survey(s *tfmodule.Survey, top, folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if tfmodule.Ext(e.Name()) == "" || e.IsDir() {
			continue
		}
		at := filepath.Join(folder, e.Name())
		name, err := filepath.Rel(top, at)
		if err != nil {
			name = e.Name()
		}
		b, err := os.ReadFile(at)
		if err != nil || len(b) > maxModuleFile {
			s.Unclear = append(s.Unclear, name+" cannot be read")
			continue
		}
		s.Read(filepath.ToSlash(name), b)
	}
	return nil
}

// judged returns the content of modules as a policy judges it. lock is the content of the lock file; nil: there is none, and the
// tool starts no provider that is not built into it.
func judged(s tfmodule.Survey, lock []byte) policy.Module {
	m := policy.Module{Sources: s.Remote()}
	if len(s.Unclear) > 0 {
		m.Unreadable = s.Unclear[0]
	}
	for _, p := range s.Programs {
		m.Programs = append(m.Programs, policy.Program{Kind: p.Kind, At: p.At})
	}
	locked, ok := tfmodule.Providers(lock)
	if !ok {
		m.Unreadable = dependencyLock + " cannot be read"
	}
	for _, p := range locked {
		m.Providers = append(m.Providers, policy.Provider{Address: p.Address, Version: p.Version})
	}
	return m
}

// judgePlan asks the customer's policy about a saved plan, and narrows the credentials of the job to what its changes use. It believes
// nothing that was stored beside the plan: the storage may be the vendor's. It reads the modules that the plan file itself contains,
// because an apply runs those, and has the tool describe the changes again.
func (j *job) judgePlan(ctx context.Context, b bundle) error {
	if j.env.Policy == nil && j.env.Narrow == nil {
		return nil
	}
	if j.env.Policy != nil {
		m, err := moduleInPlan(b.plan)
		if err == nil {
			err = j.env.Policy.Module(m)
		}
		if err != nil {
			return err
		}
	}
	if err := j.judgeModule(); err != nil { // the tool also starts the providers of the folder
		return err
	}
	shown, err := j.show(ctx)
	if err != nil {
		return err
	}
	set, err := changesOf(shown, j.env.Mask, true)
	if err != nil {
		return fmt.Errorf("build the change set: %w", err)
	}
	if j.env.Narrow != nil { // before the policy counts the apply
		if err := j.env.Narrow(ctx, useOf(shown, set)); err != nil {
			return err
		}
	}
	if j.env.Policy == nil {
		return nil
	}
	return j.env.Policy.Applies(ctx, set, baseOf(b.plan), j.spec.Plan.Digest)
}

// The names of what a plan file contains. See internal/configs/configload of OpenTofu and Terraform.
const (
	configInPlan  = "tfconfig/"
	modulesInPlan = "tfconfig/modules.json"
	lockInPlan    = ".terraform.lock.hcl"
)

// maxConfigInPlan bounds all modules in a plan file, in bytes.
const maxConfigInPlan = 64 << 20

// moduleInPlan returns what the modules in a plan file contain. What cannot be read is unreadable, such as an encrypted plan.
func moduleInPlan(plan []byte) (policy.Module, error) {
	unreadable := policy.Module{Unreadable: "the configuration in the saved plan cannot be read"}
	z, err := zip.NewReader(bytes.NewReader(plan), int64(len(plan)))
	if err != nil {
		return unreadable, nil
	}
	var s tfmodule.Survey
	var lock []byte
	listed := false
	left := int64(maxConfigInPlan)
	seen := map[string]bool{}
	for _, f := range z.File {
		inConfig := strings.HasPrefix(f.Name, configInPlan)
		if !inConfig && f.Name != lockInPlan {
			continue
		}
		if seen[f.Name] { // two readers could take different ones
			return unreadable, nil
		}
		seen[f.Name] = true
		b, err := readMember(f, left)
		if err != nil {
			return unreadable, nil
		}
		left -= int64(len(b))
		switch {
		case f.Name == lockInPlan:
			lock = b
		case f.Name == modulesInPlan:
			listed = json.Valid(b)
		default:
			// The tool has stored each file that it read, so each is one of a module, whatever its name is.
			s.Read(strings.TrimPrefix(f.Name, configInPlan), b)
		}
	}
	if !listed {
		return unreadable, nil
	}
	return judged(s, lock), nil
}

func readMember(f *zip.File, most int64) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(b)) > most {
		err = errors.New("it is too large")
	}
	return b, err
}
