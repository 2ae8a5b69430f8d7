package role

import (
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
)

// Variable is the environment variable that tells a process that it is to play a role, and which.
const Variable = "TRIBUTARY_BENCH_ROLE"

// The roles.
const (
	RoleServer   = "Server"
	RoleClient   = "Client"
	RoleEnvoys   = "Envoys"
	RoleAttacker = "Attacker"
)

// Serve plays the role that the environment names until standard input ends, and reports whether there was one.
func Serve() (played bool, err error) {
	name := os.Getenv(Variable)
	var receiver any
	switch name {
	case "":
		return false, nil
	case RoleServer:
		receiver = new(Server)
	case RoleClient:
		receiver = new(Client)
	case RoleEnvoys:
		receiver = new(Envoys)
	case RoleAttacker:
		receiver = new(Attacker)
	default:
		return true, fmt.Errorf("%s: no role is called %q", Variable, name)
	}
	server := rpc.NewServer()
	if err := server.RegisterName(name, receiver); err != nil {
		return true, err
	}
	server.ServeCodec(jsonrpc.NewServerCodec(stdio{os.Stdin, os.Stdout}))
	return true, nil
}

type stdio struct {
	io.Reader
	io.WriteCloser
}
