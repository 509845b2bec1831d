// Command recordcalls records the calls to AWS of public modules: what OpenTofu and the real
// provider hashicorp/aws ask a server that is compatible with AWS when they plan, create,
// change and remove a module. The tests of infra/runnerstack ask the IAM simulator whether the
// roles of a customer's stack allow these calls.
//
//	make record-calls CLONES=FOLDER [MODULES="sqs vpc"]
//
// FOLDER has the git repositories of the modules, named as on GitHub:
// FOLDER/terraform-aws-sqs. Each file NAME.tf in the folder -calls is a case: its first line
// names the module, the version and the commit, which recordcalls takes from the repository;
// the rest uses the module. The recording is NAME.json beside it: the module's code does not
// enter this repository. The account in it is an example, and all names are the server's.
//
// The recording also has the changes of each plan that was applied, and which of the calls its apply made: the tests ask
// whether a session policy that is made of these changes allows the calls.
//
// recordcalls also writes the actions of AWS's managed policy ReadOnlyAccess, which the role of
// plans has, to the folder's read-only/ReadOnlyAccess.json.
//
// Not in a recording: calls that AWS makes itself on behalf of the caller, such as those to
// KMS, because no server here makes them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "recordcalls:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("recordcalls", flag.ExitOnError)
	calls := flags.String("calls", "infra/runnerstack/testdata/calls", "the folder with the cases and the recordings")
	clones := flags.String("clones", "", "the folder with the git repositories of the modules")
	provider := flags.String("provider", "", "the mirror with the provider, from tools/awsprovider")
	tofu := flags.String("tofu", os.Getenv("FAIRLEAD_TOFU"), "the program OpenTofu")
	if err := flags.Parse(args); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(*calls, "*.tf"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no cases in %s: %w", *calls, err)
	}
	known, err := loadActions(ctx)
	if err != nil {
		return err
	}
	r := recorder{clones: *clones, provider: *provider, tofu: *tofu, actions: known}
	var failed []string
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".tf")
		if flags.NArg() > 0 && !slices.Contains(flags.Args(), name) {
			continue
		}
		recording, err := r.record(ctx, file)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			failed = append(failed, name)
			continue
		}
		if err := os.WriteFile(filepath.Join(*calls, name+".json"), recording.json(), 0o644); err != nil {
			return err
		}
		if err := writePolicy(*calls, r.readOnly); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s: %d calls %s\n", name, len(recording.Calls), recording.Incomplete)
	}
	if len(failed) > 0 {
		return fmt.Errorf("not recorded: %s", strings.Join(failed, ", "))
	}
	return nil
}

// writePolicy writes the actions of a policy on the services that the recordings in the
// folder use.
func writePolicy(folder string, p policy) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, file := range files {
		var r Recording
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		for _, c := range r.Calls {
			service, _, _ := strings.Cut(c.Action, ":")
			used[service] = true
		}
	}
	p.Actions = slices.DeleteFunc(slices.Clone(p.Actions), func(action string) bool {
		service, _, _ := strings.Cut(action, ":")
		return !used[service]
	})
	folder = filepath.Join(folder, "read-only") // the tests read all files beside the recordings as recordings
	text, err := json.MarshalIndent(map[string]any{"policy": "arn:aws:iam::aws:policy/ReadOnlyAccess", "version": p.Version, "actions": p.Actions}, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "ReadOnlyAccess.json"), append(text, '\n'), 0o644))
}
