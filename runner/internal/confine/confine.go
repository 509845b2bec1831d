// Package confine keeps what a step starts from the files and processes of the
// runner that has started it, and from other jobs'. On Linux it is Landlock
// that does; elsewhere there is nothing that could.
//
// It takes no process beside the tool's: Landlock's rules are a thread's, and
// pass to what the thread starts. So Run gives the starting of a tool a thread
// of its own, confines that, and lets it end with the tool. The rest of the
// step, which writes its report and its log and talks to the control plane, is
// as free as before, and outside of what its tools reach: were the step itself
// confined, they could kill it, and its folder would have to be theirs.
//
// Files and folders that a confined process may not reach are there for it,
// with their names and sizes, and cannot be opened. Sockets that have a path can
// be connected to: who may use Docker's is root all the same.
package confine

// Reach is what confined processes may reach of a machine's files. Paths are
// absolute; one that is not there, or that the user cannot reach anyway, is
// passed over.
type Reach struct {
	Read  []string // files, and folders with all that is in them, are read and run
	Write []string // these are changed, too
	// Private are not reached through Read and Write, wherever those lead: of a
	// folder above, all that is in it now is reached but what leads there. So
	// nothing new can be made right in such a folder. Who can do without that
	// lists / in Write: then nothing is kept from being changed, what is private
	// neither, which cannot be read all the same.
	Private []string
	Own     Own
}

// Own is what one job may reach, private or not, and what is private beside that.
type Own struct {
	Read    []string
	Write   []string
	Private []string
}

// System are the folders with the programs of a machine, their libraries, their
// settings, and the machine as the kernel shows it.
func System() []string {
	return []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/proc", "/sys", "/nix", "/gnu", "/snap",
		// What programs look for where systems keep it elsewhere: names of hosts
		// and users, certificates, and the system's own programs.
		"/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf", "/run/nscd", "/run/current-system",
		"/var/lib/ca-certificates", "/var/lib/sss", "/var/cache/nscd",
	}
}

// devices are those that a program may count on. A disk, or the machine's
// memory, would lead around all this, where the user is root.
func devices() []string {
	return []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/shm"}
}
