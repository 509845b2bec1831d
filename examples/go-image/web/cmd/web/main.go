// Command web prints a greeting. It stands for a server.
package main

func main() { println("hello") }
