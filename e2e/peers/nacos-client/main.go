// Command nacos-client registers an instance of a service in a Nacos, as its flags say, until it is told to end.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/nacos-group/nacos-sdk-go/v2/clients"
	"github.com/nacos-group/nacos-sdk-go/v2/common/constant"
	"github.com/nacos-group/nacos-sdk-go/v2/vo"
)

func main() {
	server := flag.Uint64("server", 8848, "port of the Nacos")
	grpc := flag.Uint64("grpc", 9848, "the same for gRPC")
	namespace := flag.String("namespace", "", "namespace")
	group := flag.String("group", "DEFAULT_GROUP", "group")
	service := flag.String("service", "orders", "service")
	cluster := flag.String("cluster", "", "cluster")
	ip := flag.String("ip", "127.0.0.1", "address of the instance")
	port := flag.Uint64("port", 8080, "port of the instance")
	weight := flag.Float64("weight", 1, "weight")
	count := flag.Int("count", 0, "how many services to register, each with its number after the name")
	metadata := flag.String("metadata", "{}", "metadata, in JSON")
	flag.Parse()

	var meta map[string]string
	if err := json.Unmarshal([]byte(*metadata), &meta); err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "nacos-client")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // nothing of worth
	client, err := clients.NewNamingClient(vo.NacosClientParam{
		ClientConfig: constant.NewClientConfig(constant.WithNamespaceId(*namespace), constant.WithNotLoadCacheAtStart(true),
			constant.WithLogDir(dir), constant.WithCacheDir(dir), constant.WithLogLevel("error")),
		ServerConfigs: []constant.ServerConfig{*constant.NewServerConfig("127.0.0.1", *server, constant.WithGrpcPort(*grpc))},
	})
	if err != nil {
		log.Fatal(err)
	}
	names := []string{*service}
	if *count > 0 {
		names = nil
	}
	for i := range *count {
		names = append(names, fmt.Sprint(*service, i))
	}
	for _, name := range names {
		instance := vo.RegisterInstanceParam{
			Ip: *ip, Port: *port, Weight: *weight, Enable: true, Healthy: true, Ephemeral: true, Metadata: meta,
			ServiceName: name, GroupName: *group, ClusterName: *cluster,
		}
		if ok, err := client.RegisterInstance(instance); !ok || err != nil {
			log.Fatal(ok, err)
		}
	}
	fmt.Println("READY")
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	<-end
	if *count > 0 {
		return
	}
	if ok, err := client.DeregisterInstance(vo.DeregisterInstanceParam{
		Ip: *ip, Port: *port, ServiceName: *service, GroupName: *group, Cluster: *cluster, Ephemeral: true,
	}); !ok || err != nil {
		log.Fatal(ok, err)
	}
}
