// Command awsprovider builds the provider hashicorp/aws from its pinned source with only
// the services that the examples need. It prints the folder of a mirror with the
// provider, for `provider_installation` of OpenTofu and Terraform.
//
// The whole provider has some 250 services. To compile it takes more than an hour on two
// cores, and 10 GB of memory. The build removes the other services from the list of
// services and from the list of clients, and keeps the rest of the pinned source as it is.
// So tests use the schema, planning and calls of the real provider. The provider's
// registry has the same version.
//
// The source comes from a public fork through the Go module proxy, because the registry
// and its releases cannot be reached everywhere. The go command verifies the source with
// source/go.sum. Each machine downloads and builds the provider once into the user's cache
// folder. The provider is never committed and never shipped. Its licence is MPL 2.0.
//
// If the source cannot be downloaded, awsprovider prints a message and no folder; with
// FAIRLEAD_REQUIRE_AWS_PROVIDER=1 it fails instead. It always fails if the build fails.
// The folder goes to stdout, everything else to stderr.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// requireEnv is the environment variable that, if "1", makes a failed download an error.
const requireEnv = "FAIRLEAD_REQUIRE_AWS_PROVIDER"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "awsprovider:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("awsprovider", flag.ExitOnError)
	source := flags.String("source", "tools/awsprovider/source", "the folder of the module that pins the provider's source")
	more := flags.String("services", "", "services beyond those of the examples, by the provider's names, with commas: kms,sns")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("find the cache folder: %w", err)
	}
	list := services()
	if *more != "" {
		list = append(list, strings.Split(*more, ",")...)
	}
	slices.Sort(list)
	mirror, err := provider{cache: cache, source: *source, services: slices.Compact(list), log: stderr}.get(ctx)
	if unfetched, ok := errors.AsType[*fetchError](err); ok && ctx.Err() == nil && os.Getenv(requireEnv) != "1" {
		fmt.Fprintf(stderr, "WITHOUT THE PROVIDER hashicorp/aws: %v\n", unfetched)
		return nil
	}
	if err != nil {
		return fmt.Errorf("get the provider hashicorp/aws %s: %w", version, err)
	}
	_, err = fmt.Fprintln(stdout, mirror)
	return err
}
