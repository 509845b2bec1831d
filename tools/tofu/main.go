// Command tofu prints the path of a Terraform-compatible tool. If no such tool is
// installed, it downloads or builds OpenTofu. It uses the first of
//
//  1. $FAIRLEAD_TOFU; if it is set, it must work;
//  2. tofu, then terraform, on PATH, unless --pinned;
//  3. the pinned OpenTofu in the user's cache folder;
//  4. the release of the pinned OpenTofu, verified by its signature, if the release
//     site answers within seconds;
//  5. the pinned OpenTofu, built once from Go modules.
//
// It saves the tool of 4 or 5 in the cache folder, where the next call finds it (3). The
// path goes to stdout, everything else to stderr. The command is a separate module, so
// that its dependencies are not the product's.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := realMain(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tofu:", err)
		os.Exit(1)
	}
}

func realMain(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("tofu", flag.ExitOnError)
	pinned := flags.Bool("pinned", false, "use no tool from PATH")
	module := flags.String("module", "tools/opentofu", "the folder of the module that pins OpenTofu")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("find the cache folder: %w", err)
	}
	f := finder{cache: cache, pinned: *pinned, release: officialRelease(), module: *module, log: os.Stderr}
	path, err := f.find(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Println(path)
	return err
}
