import java.util.List;
import java.util.Map;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.node.InternalSettingsPreparer;
import org.elasticsearch.transport.Netty4Plugin;

/** A node of Elasticsearch on loopback: {@code java Node.java FOLDER HTTP_PORT TRANSPORT_PORT}. */
final class Node extends org.elasticsearch.node.Node {
  private Node(Settings settings) {
    super(InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "peer"),
        List.of(Netty4Plugin.class), true);
  }

  public static void main(String[] arguments) throws Exception {
    Settings settings = Settings.builder()
        .put("path.home", arguments[0])
        .put("cluster.name", "peer")
        .put("node.name", "peer")
        .put("http.type", "netty4")
        .put("transport.type", "netty4")
        .put("network.host", "127.0.0.1")
        .put("http.port", arguments[1])
        .put("transport.port", arguments[2])
        .put("discovery.type", "single-node")
        .put("cluster.routing.allocation.disk.threshold_enabled", false)
        .build();
    Node node = new Node(settings);
    node.start();
    Thread.currentThread().join();
  }
}
