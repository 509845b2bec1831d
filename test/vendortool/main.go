// Command vendortool is the interpreter of scripts in a vendor's image: the first line of the script
// names its path in the image. It prints the script's arguments, its own variables and what it can
// write, and reports one output. If the first line of the script has the argument wait, it waits for an
// interrupt.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	fmt.Printf("arguments: %s\n", strings.Join(os.Args[1:], " "))
	if len(os.Args) > 1 && os.Args[1] == "wait" {
		interrupts := make(chan os.Signal, 1)
		signal.Notify(interrupts, syscall.SIGINT)
		fmt.Println("waits")
		<-interrupts
		fmt.Println("saved")
		os.Exit(1)
	}
	for _, v := range slices.Sorted(slices.Values(os.Environ())) {
		fmt.Printf("variable: %s\n", v)
	}
	for _, folder := range []string{"/", "/.fairlead", "/tmp", "."} {
		f, err := os.CreateTemp(folder, "probe")
		if err == nil {
			f.Close()
			os.Remove(f.Name())
		}
		fmt.Printf("writes %s: %t\n", folder, err == nil)
	}
	_, err := os.ReadFile("/proc/1/environ")
	fmt.Printf("reads the variables of process 1: %t\n", err == nil)
	if file := os.Getenv("FAIRLEAD_OUTPUTS"); file != "" {
		if err := os.WriteFile(file, []byte(`{"interpreter": {"value": "`+os.Args[0]+`"}}`), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
