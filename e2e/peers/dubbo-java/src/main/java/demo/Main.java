package demo;

import java.util.ArrayList;
import java.util.List;
import org.apache.dubbo.common.URL;
import org.apache.dubbo.common.extension.ExtensionLoader;
import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.ProtocolConfig;
import org.apache.dubbo.config.ReferenceConfig;
import org.apache.dubbo.config.RegistryConfig;
import org.apache.dubbo.config.ServiceConfig;
import org.apache.dubbo.config.bootstrap.DubboBootstrap;
import org.apache.dubbo.registry.RegistryFactory;

/**
 * A provider as its system properties say: zk or registry, app, port, mode, metadata, protocol, group, version, weight. With consumer it calls
 * the service instead, and with rule it is an administrator who registers that URL.
 */
public class Main {
    private static String get(String key, String standard) {
        return System.getProperty("p." + key, standard);
    }

    public static void main(String[] args) throws Exception {
        System.setProperty("dubbo.application.register-mode", get("mode", "all"));
        ApplicationConfig app = new ApplicationConfig(get("app", "java-app"));
        app.setMetadataType(get("metadata", "local"));
        app.setQosEnable(false);
        RegistryConfig registry = new RegistryConfig(get("registry", "zookeeper://" + get("zk", "127.0.0.1:2181") + "?session=3000"));
        if (registry.getAddress().startsWith("consul:")) { // what else Dubbo would use Consul for needs one more library
            registry.setUseAsConfigCenter(false);
            registry.setUseAsMetadataCenter(false);
        }
        if (!get("consumer", "").isEmpty() || !get("rule", "").isEmpty()) {
            DubboBootstrap bootstrap = DubboBootstrap.getInstance().application(app).registry(registry);
            if (!get("consumer", "").isEmpty()) {
                ReferenceConfig<GreetService> reference = new ReferenceConfig<>();
                reference.setInterface(GreetService.class);
                reference.setCheck(false);
                if (!get("group", "").isEmpty()) {
                    reference.setGroup(get("group", ""));
                }
                if (!get("version", "").isEmpty()) {
                    reference.setVersion(get("version", ""));
                }
                bootstrap.reference(reference);
            }
            bootstrap.start();
            if (!get("rule", "").isEmpty()) {
                ExtensionLoader.getExtensionLoader(RegistryFactory.class).getAdaptiveExtension()
                    .getRegistry(URL.valueOf(registry.getAddress())).register(URL.valueOf(get("rule", "")));
            }
            System.out.println("READY");
            Thread.currentThread().join();
        }
        List<ProtocolConfig> protocols = new ArrayList<>();
        String[] names = get("protocol", "dubbo").split(",");
        String[] ports = get("port", "20880").split(",");
        for (int i = 0; i < names.length; i++) {
            ProtocolConfig p = new ProtocolConfig(names[i], Integer.parseInt(ports[i]));
            p.setId(names[i]);
            protocols.add(p);
        }
        ServiceConfig<GreetService> service = new ServiceConfig<>();
        service.setId("greet");
        service.setInterface(GreetService.class);
        final String who = get("app", "java-app");
        service.setRef(name -> "hello " + name + " from " + who);
        if (!get("group", "").isEmpty()) {
            service.setGroup(get("group", ""));
        }
        if (!get("version", "").isEmpty()) {
            service.setVersion(get("version", ""));
        }
        if (!get("weight", "").isEmpty()) {
            service.setWeight(Integer.parseInt(get("weight", "")));
        }
        DubboBootstrap.getInstance().application(app).registry(registry).protocols(protocols).service(service).start();
        System.out.println("READY");
        Thread.currentThread().join();
    }
}
