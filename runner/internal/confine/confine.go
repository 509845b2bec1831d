// Package confine isolates the tools of a step from the files and processes of the runner and of other
// jobs. On Linux it uses Landlock. On other systems it isolates nothing.
//
// It needs no additional process: Landlock's rules apply to a thread, and every process that the
// thread starts inherits them. So Run starts a tool on a new thread and confines that thread, which
// ends after the tool. The rest of the step writes the report and the log and calls the control plane.
// It is not confined, and its tools cannot reach it. If the step itself were confined, its tools could
// kill it and would need access to its folder.
//
// A confined process sees the names and sizes of files that it may not reach, but it cannot open these
// files. It can connect to Unix sockets that have a path. So it can use Docker's socket if its user
// can, and each user of Docker's socket has the rights of root.
package confine

// Reach lists the files of the machine that confined processes can reach. Paths are absolute. A path
// that does not exist, or that the user cannot reach anyway, is ignored. A folder includes everything
// below it.
type Reach struct {
	Read  []string // files and folders that the processes can read and execute
	Write []string // files and folders that they can change too
	// Private lists paths that are excluded from Read and Write, even if they are below a folder of
	// Read or Write. If a folder of Read or Write contains a private path, the processes reach each
	// entry that exists in the folder now, except the private path. So they cannot make a new entry
	// directly in such a folder. If Write contains "/", the processes can change all files, even the
	// private files. They still cannot read the private files.
	Private []string
	Own     Own
}

// Own lists the files of one job. The job reaches the files in Read and Write even if Reach.Private
// contains them. The job cannot reach the other files in Private and in Reach.Private.
type Own struct {
	Read    []string
	Write   []string
	Private []string
}

// System returns the folders with the machine's programs, libraries and settings, and the kernel's
// virtual file systems.
func System() []string {
	return []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/proc", "/sys", "/nix", "/gnu", "/snap",
		// Other places of some systems for host names, user names, certificates and programs.
		"/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager/resolv.conf", "/run/nscd", "/run/current-system",
		"/var/lib/ca-certificates", "/var/lib/sss", "/var/cache/nscd",
	}
}

// devices returns the devices that every program may expect. It excludes disks and the machine's
// memory: through them, root could bypass the confinement.
func devices() []string {
	return []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/shm"}
}
