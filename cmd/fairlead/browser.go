package main

import (
	"os"
	"os/exec"

	"github.com/pkg/browser"
)

// openBrowser opens a URL in the person's browser: the program that $BROWSER names, else the one of the desktop. It does not wait
// for the browser.
func openBrowser(url string) error {
	if program := os.Getenv("BROWSER"); program != "" {
		cmd := exec.Command(program, url)
		if err := cmd.Start(); err != nil {
			return err
		}
		go func() { _ = cmd.Wait() }() // its end means nothing
		return nil
	}
	browser.Stdout = os.Stderr // the standard output is for the result
	return browser.OpenURL(url)
}
