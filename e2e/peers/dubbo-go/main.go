// Command dubbo-go is a provider of com.acme.Greeter, as its flags say, until it is told to end.
package main

import (
	"context"
	"flag"
	"log"

	"dubbo.apache.org/dubbo-go/v3"
	_ "dubbo.apache.org/dubbo-go/v3/imports"
	"dubbo.apache.org/dubbo-go/v3/protocol"
	"dubbo.apache.org/dubbo-go/v3/registry"
	"dubbo.apache.org/dubbo-go/v3/server"
)

// Greeter greets.
type Greeter struct{ app string }

// Greet says hello to somebody.
func (g Greeter) Greet(_ context.Context, name string) (string, error) {
	return "hello " + name + " from " + g.app, nil
}

// Reference is what the service is called.
func (Greeter) Reference() string { return "com.acme.Greeter" }

func main() {
	zk := flag.String("zk", "127.0.0.1:2181", "ZooKeeper")
	nacos := flag.String("nacos", "", "Nacos, instead of ZooKeeper")
	app := flag.String("app", "go-app", "application")
	mode := flag.String("mode", "all", "interface, instance or all")
	remote := flag.Bool("remote", false, "metadata in the metadata report")
	proto := flag.String("protocol", "tri", "tri or dubbo")
	ip := flag.String("ip", "127.0.0.1", "address")
	port := flag.Int("port", 20000, "port")
	metadataPort := flag.Int("metadata-port", 20001, "port of the metadata service")
	group := flag.String("group", "", "group")
	version := flag.String("version", "", "version")
	flag.Parse()

	where := []registry.Option{registry.WithZookeeper(), registry.WithAddress(*zk)}
	if *nacos != "" {
		where = []registry.Option{registry.WithNacos(), registry.WithAddress(*nacos)}
	}
	switch *mode {
	case "interface":
		where = append(where, registry.WithRegisterInterface())
	case "instance":
		where = append(where, registry.WithRegisterService())
	default:
		where = append(where, registry.WithRegisterServiceAndInterface())
	}
	how := protocol.WithTriple()
	if *proto == "dubbo" {
		how = protocol.WithDubbo()
	}
	options := []dubbo.InstanceOption{
		dubbo.WithName(*app), dubbo.WithRegistry(where...), dubbo.WithMetadataServicePort(*metadataPort),
		dubbo.WithProtocol(how, protocol.WithIp(*ip), protocol.WithPort(*port)),
	}
	if *remote {
		options = append(options, dubbo.WithRemoteMetadata())
	}
	instance, err := dubbo.NewInstance(options...)
	if err != nil {
		log.Fatal(err)
	}
	s, err := instance.NewServer()
	if err != nil {
		log.Fatal(err)
	}
	service := []server.ServiceOption{server.WithInterface("com.acme.Greeter")}
	if *group != "" {
		service = append(service, server.WithGroup(*group))
	}
	if *version != "" {
		service = append(service, server.WithVersion(*version))
	}
	if err := s.RegisterService(Greeter{*app}, service...); err != nil {
		log.Fatal(err)
	}
	if err := s.Serve(); err != nil {
		log.Fatal(err)
	}
}
