// Package process is about processes and the system that they run on: locks of files (flock), what servers listen on (listen), how one
// process takes over from another (upgrade, start), and the manager of the service (systemd).
package process
