// Command fairlead-registry serves the registry of images of a control plane on one machine. The control plane starts it as a process
// of its own, because the library computes a password hash when a program starts: each command of the CLI would take 70 ms longer.
//
// The process listens on a Unix socket in a folder that only its user can read. The control plane decides who may request what.
package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	folder, socket := flag.String("folder", "", "folder of the repositories"), flag.String("socket", "", "path of the Unix socket that it makes")
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	// Ctrl-C and a service manager send signals to all processes of the control plane, which ends the registry after its own requests.
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	err := serve(context.Background(), *folder, *socket, os.Stdin, os.Stdout, log)
	_ = os.Remove(filepath.Dir(*socket)) // a control plane that was killed cannot remove it; it stays if it has other files
	if err != nil {
		log.Error(err.Error())
		os.Exit(1)
	}
}
